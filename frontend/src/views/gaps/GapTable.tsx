import type { Gap, GapsAnswer } from "../../api/gaps";
import { formatInt, formatMeasured, shorten } from "../../format";
import { t, tId } from "../../i18n";
import { textParam } from "../../state/params";
import { type Column, DataTable, titleOf } from "../../ui/DataTable";
import { gpuName } from "../../ui/gpu";
import { Swatch } from "../../ui/Swatch";

const gapSort = textParam("gap_sort", "-duration", { ofProfile: false });
const gapSearch = textParam("gap_search");

interface GapTableProps {
  answer: GapsAnswer;
  cause: string;
  hosts: boolean;
  chosen: Gap | undefined;
  choose: (gap: Gap) => void;
}

const NAME = 44;

/** The longest gaps; choosing one tells its story. */
export function GapTable({ answer, cause, hosts, chosen, choose }: GapTableProps) {
  const charged = (gap: Gap) => gap.causes_ms[cause || gap.cause] ?? null;
  const columns: Column<Gap>[] = [
    {
      key: "duration",
      label: t("gaps_length"),
      hint: t("term_gap"),
      csvLabel: "duration_ms",
      value: (gap) => gap.duration_ms,
      cell: (gap) => formatMeasured(gap.duration_ms),
      number: true,
    },
    {
      key: "cause",
      label: t("gaps_cause"),
      hint: t("term_gap_cause"),
      value: (gap) => tId("category", gap.cause),
      csv: (gap) => gap.cause,
      cell: (gap) => (
        <>
          <Swatch category={gap.cause} /> {tId("category", gap.cause)}
        </>
      ),
    },
    {
      key: "charged",
      label: t("gaps_charged"),
      hint: t("term_gap_charged"),
      csvLabel: "charged_ms",
      number: true,
      value: charged,
      cell: (gap) => formatMeasured(charged(gap)),
    },
    { key: "gpu", label: t("gpu"), value: (gap) => gpuName({ host: gap.host, id: gap.gpu }, hosts) },
    { key: "step", label: t("tip_step"), number: true, value: (gap) => gap.step, cell: (gap) => formatInt(gap.step) },
    {
      key: "evidence",
      label: t("tip_evidence"),
      hint: t("term_gap_evidence"),
      value: (gap) => gap.evidence,
      cell: (gap) => (gap.evidence ? shorten(gap.evidence, NAME) : "–"),
      title: (gap) => titleOf(gap.evidence),
    },
    {
      key: "before",
      label: t("gaps_before"),
      value: (gap) => gap.before,
      cell: (gap) => (gap.before ? shorten(gap.before, NAME) : "–"),
      title: (gap) => titleOf(gap.before),
    },
    {
      key: "after",
      label: t("gaps_after"),
      value: (gap) => gap.after,
      cell: (gap) => (gap.after ? shorten(gap.after, NAME) : "–"),
      title: (gap) => titleOf(gap.after),
    },
    { key: "start", label: "start_ps", csvOnly: true, number: true, value: (gap) => gap.start_ps },
    { key: "thread", label: "thread", csvOnly: true, number: true, value: (gap) => gap.thread },
  ];
  return (
    <DataTable
      name="gaps"
      label={t("gaps_ranked")}
      rows={answer.gaps}
      columns={columns}
      order={gapSort}
      search={gapSearch}
      searchLabel={t("gaps_search")}
      note={
        answer.truncated || answer.matching > answer.gaps.length
          ? t("gaps_longest", { n: formatInt(answer.gaps.length), total: formatInt(answer.matching) })
          : undefined
      }
      onChoose={choose}
      chosen={(gap) => gap === chosen}
      tallest={400}
    />
  );
}
