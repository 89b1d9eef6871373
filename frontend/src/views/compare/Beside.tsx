import type { ComparedRun, Comparison } from "../../api/compare";
import { cleanText, formatBytes, formatInt, formatMeasured, formatNumber, formatPercent, UNKNOWN } from "../../format";
import { t, tId } from "../../i18n";
import { textParam } from "../../state/params";
import { type Column, DataTable } from "../../ui/DataTable";
import { formatChange } from "./words";

const besideSort = textParam("compare_beside", "", { ofProfile: false });

interface Fact {
  id: string;
  name: string;
  before: string | number | null;
  after: string | number | null;
  show: (value: string | number | null) => string;
  /** Whether a relative change says something. */
  relative: boolean;
}

const asText = (value: string | number | null): string => (value === null ? UNKNOWN : cleanText(String(value)));
const asNumber =
  (format: (value: number | null) => string) =>
  (value: string | number | null): string =>
    format(typeof value === "number" ? value : null);
const unit = (sign: string) => asNumber((value) => (value === null ? UNKNOWN : `${formatNumber(value)} ${sign}`));

const METRICS: Record<string, (value: string | number | null) => string> = {
  utilization: asNumber(formatPercent),
  clock_mhz: unit("MHz"),
  power_watts: unit("W"),
  temperature_celsius: unit("°C"),
  memory_peak_bytes: asNumber(formatBytes),
  throttled: asNumber(formatPercent),
};

/** The two runs and what was measured of them, side by side. */
export function besideFacts({ before, after }: Pick<Comparison, "before" | "after">): Fact[] {
  const fact = (
    id: string,
    of: (run: ComparedRun) => string | number | null,
    show: Fact["show"],
    relative = false,
  ): Fact => ({ id, name: tId("beside", id), before: of(before), after: of(after), show, relative });
  const metrics = [...new Set([...Object.keys(before.telemetry), ...Object.keys(after.telemetry)])];
  return [
    fact("verdict", (run) => tId("verdict_word", run.verdict), asText),
    fact("models", (run) => run.models.join(", ") || null, asText),
    fact("gpus", (run) => run.gpus, asNumber(formatInt)),
    fact("hosts", (run) => run.hosts, asNumber(formatInt)),
    fact("batch", (run) => run.batch, asNumber(formatInt)),
    fact("steps", (run) => run.steps, asNumber(formatInt)),
    fact("median_step", (run) => run.median_step_ms, asNumber(formatMeasured), true),
    fact("occupancy", (run) => run.occupancy, asNumber(formatPercent), true),
    ...metrics.map((name) =>
      fact(name, (run) => run.telemetry[name] ?? null, METRICS[name] ?? asNumber(formatNumber), true),
    ),
  ];
}

export function Beside({ answer }: { answer: Comparison }) {
  const facts = besideFacts(answer);
  const moved = ({ before, after, relative }: Fact) =>
    relative && typeof before === "number" && typeof after === "number" && before > 0 ? after / before - 1 : null;
  const columns: Column<Fact>[] = [
    { key: "name", label: t("compare_measure"), value: ({ name }) => name, csv: ({ id }) => id },
    { key: "before", label: t("compare_before"), number: true, value: (f) => f.before, cell: (f) => f.show(f.before) },
    { key: "after", label: t("compare_after"), number: true, value: (f) => f.after, cell: (f) => f.show(f.after) },
    {
      key: "change",
      label: t("compare_change"),
      number: true,
      csvLabel: "relative_change",
      value: moved,
      cell: (fact) => (moved(fact) === null ? (fact.before === fact.after ? "=" : "") : formatChange(moved(fact))),
    },
  ];
  const telemetry = Object.keys(answer.before.telemetry).length && Object.keys(answer.after.telemetry).length;
  return (
    <>
      <h3 class="apart">{t("compare_beside")}</h3>
      <DataTable
        name="compare-runs"
        label={t("compare_beside")}
        rows={facts}
        columns={columns}
        order={besideSort}
        note={telemetry ? undefined : t("compare_no_telemetry")}
        rowKey={({ id }) => id}
      />
    </>
  );
}
