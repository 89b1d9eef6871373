import type { ComparedPart, Comparison, Interval } from "../../api/compare";
import { Plot } from "../../charts/Plot";
import { formatMeasured, formatPercent } from "../../format";
import { lang, t, tId } from "../../i18n";
import { textParam } from "../../state/params";
import { type Column, DataTable } from "../../ui/DataTable";
import { Legend, Swatch } from "../../ui/Swatch";
import { drawPair, PAIR_HEIGHT } from "./pairs";
import { formatChange, formatMoved } from "./words";

const partSort = textParam("compare_parts", "", { ofProfile: false });

export interface PartRow {
  part: string;
  before: number;
  after: number;
  difference: Interval | null;
}

/** The parts in the comparison's own unit: times, or without steps shares of the window. */
export const partRows = (answer: Comparison): PartRow[] =>
  answer.parts.map((part: ComparedPart) => ({
    part: part.part,
    before: part.before_ms ?? part.before_share ?? 0,
    after: part.after_ms ?? part.after_share ?? 0,
    difference: part.difference_ms ?? part.difference_share ?? null,
  }));

/** Whether a change could be none. */
export const withinNoise = ({ difference }: PartRow): boolean =>
  difference !== null && difference.low <= 0 && difference.high >= 0;

/** Where the time went before and after. */
export function Parts({ answer }: { answer: Comparison }) {
  const rows = partRows(answer);
  if (!rows.length) return null;
  const shares = answer.unit === "window";
  const show = (value: number) => (shares ? formatPercent(value) : formatMeasured(value));
  const moved = (value: number) => (shares ? formatChange(value) : formatMoved(value));
  const describe = (row: PartRow) =>
    `${tId("category", row.part)}: ${show(row.before)} → ${show(row.after)} (${moved(row.after - row.before)}${
      withinNoise(row) ? `, ${t("compare_noise")}` : ""
    })`;
  const total = (key: "before" | "after") => rows.reduce((sum, row) => sum + row[key], 0);
  const largest = [...rows].sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before)).slice(0, 3);
  const unit = shares ? "share" : "ms";
  const columns: Column<PartRow>[] = [
    {
      key: "part",
      label: t("compare_part"),
      value: ({ part }) => tId("category", part),
      csv: ({ part }) => part,
      cell: ({ part }) => (
        <span title={tId("category_hint", part)}>
          <Swatch category={part} /> {tId("category", part)}
        </span>
      ),
    },
    ...(["before", "after"] as const).map(
      (key): Column<PartRow> => ({
        key,
        label: t(`compare_${key}`),
        hint: t("term_compare_part"),
        csvLabel: `${key}_${unit}`,
        number: true,
        value: (row) => row[key],
        cell: (row) => show(row[key]),
      }),
    ),
    {
      key: "change",
      label: t("compare_change"),
      hint: t("term_compare_change"),
      csvLabel: `change_${unit}`,
      number: true,
      value: (row) => row.after - row.before,
      cell: (row) => moved(row.after - row.before),
    },
    {
      key: "interval",
      label: t("compare_interval"),
      hint: t("term_compare_interval", { confidence: formatPercent(answer.confidence) }),
      number: true,
      csvOnly: false,
      csvLabel: `interval_low_${unit}`,
      value: ({ difference }) => difference?.low ?? null,
      cell: (row) =>
        row.difference
          ? `${moved(row.difference.low)} … ${moved(row.difference.high)}${withinNoise(row) ? ` · ${t("compare_noise")}` : ""}`
          : "–",
    },
    {
      key: "high",
      label: `interval_high_${unit}`,
      csvOnly: true,
      number: true,
      value: ({ difference }) => difference?.high ?? null,
    },
  ];
  return (
    <>
      <Plot
        name="compare-parts"
        title={t("compare_parts")}
        summary={largest.map(describe).join(". ")}
        height={PAIR_HEIGHT}
        depends={[answer, lang.value]}
        categories={rows.map(({ part }) => part)}
        draw={(scene) =>
          drawPair(
            scene,
            [t("compare_before"), t("compare_after")],
            shares ? ["", ""] : [formatMeasured(total("before")), formatMeasured(total("after"))],
            rows.map((row) => ({ category: row.part, before: row.before, after: row.after, text: describe(row) })),
          )
        }
        legend={<Legend categories={rows.map(({ part }) => part)} />}
      />
      <DataTable
        name="compare-parts"
        label={t("compare_parts")}
        rows={rows}
        columns={columns}
        order={partSort}
        note={shares ? t("compare_parts_shares") : t("compare_parts_sum")}
      />
    </>
  );
}
