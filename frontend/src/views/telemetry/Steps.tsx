import { useMemo } from "preact/hooks";
import type { Recording } from "../../api/telemetry";
import { SeriesPlot } from "../../charts/SeriesPlot";
import type { Line } from "../../charts/series";
import { formatInt, formatMeasured, formatNumber } from "../../format";
import { lang, t } from "../../i18n";
import { type AxisKind, align } from "./data";

const MOST = 8;

const median = (values: readonly number[]): number | null => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
};

/** Step times of one axis: the mean of each stretch, and its longest step where it holds several. */
function lines(
  recordings: readonly Recording[],
  axis: AxisKind,
  of: "time" | "rate",
): { times: number[]; lines: Line[] } {
  const named = recordings.length > 1;
  const points: { label: string; style: number; points: { x: number; value: number | null }[] }[] = [];
  for (const [i, { steps, host, process_id }] of recordings.slice(0, MOST).entries()) {
    if (!steps) continue;
    const name = named ? ` · ${host} ${process_id ?? ""}` : "";
    const x = axis === "time" ? steps.unix_ms.map((ms) => ms / 1000) : steps.step;
    const line = (values: readonly (number | null)[]) => x.map((at, j) => ({ x: at, value: values[j] }));
    if (of === "rate") {
      if (steps.samples_per_s.some((value) => value !== null))
        points.push({ label: `${t("steps_rate_line")}${name}`, style: i, points: line(steps.samples_per_s) });
      continue;
    }
    points.push({ label: `${t("steps_mean_line")}${name}`, style: i, points: line(steps.mean_ms) });
    if (steps.count > steps.step.length)
      points.push({ label: `${t("steps_longest_line")}${name}`, style: i + MOST, points: line(steps.max_ms) });
  }
  const { times, values } = align(points.map((one) => one.points));
  return {
    times,
    lines: points.map(({ label, style }, i) => ({ label, style, values: values[i] })),
  };
}

interface StepsProps {
  recordings: readonly Recording[];
  axis: AxisKind;
  zoom: { start: number; end: number } | null;
  onZoom: (range: { start: number; end: number } | null) => void;
}

/** How long the steps took, and how many samples a second that made. */
export function StepTimes({ recordings, axis, zoom, onZoom }: StepsProps) {
  const known = useMemo(() => recordings.filter(({ steps }) => steps?.count), [recordings]);
  const times = useMemo(() => lines(known, axis, "time"), [known, axis, lang.value]);
  const rates = useMemo(() => lines(known, axis, "rate"), [known, axis, lang.value]);
  if (!known.length) return null;
  const all = known.flatMap(({ steps }) => steps?.mean_ms ?? []);
  const profiled = known.flatMap(({ steps }) => steps?.mean_ms.filter((_, i) => steps.profiled[i]) ?? []);
  const others = known.flatMap(({ steps }) => steps?.mean_ms.filter((_, i) => !steps.profiled[i]) ?? []);
  const count = known.reduce((sum, { steps }) => sum + (steps?.count ?? 0), 0);
  const rate = median(known.flatMap(({ steps }) => steps?.samples_per_s.filter((one) => one !== null) ?? []));
  const sentence = [
    t("steptimes_sentence", { n: formatInt(count), median: formatMeasured(median(all)) }),
    rate === null ? "" : t("steptimes_rate", { rate: formatNumber(rate) }),
    profiled.length && others.length
      ? t("steptimes_profiled", { profiled: formatMeasured(median(profiled)), others: formatMeasured(median(others)) })
      : "",
  ]
    .filter(Boolean)
    .join(" ");
  const shared = {
    height: 190,
    time: axis === "time" ? "unix" : "",
    zoom,
    onZoom,
  };
  return (
    <>
      <h3 class="apart">{t("steptimes_heading")}</h3>
      <SeriesPlot
        name="telemetry-steps"
        title={t("steptimes_title")}
        summary={sentence}
        depends={[times, zoom?.start, zoom?.end]}
        unit="ms"
        times={times.times}
        lines={times.lines}
        {...shared}
      />
      {rates.lines.length ? (
        <SeriesPlot
          name="telemetry-rate"
          title={t("steptimes_rate_title")}
          summary={sentence}
          depends={[rates, zoom?.start, zoom?.end]}
          unit={t("samples_per_s")}
          times={rates.times}
          lines={rates.lines}
          {...shared}
        />
      ) : null}
      <p class="sentence">{sentence}</p>
    </>
  );
}
