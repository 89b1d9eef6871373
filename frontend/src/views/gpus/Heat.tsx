import { useMemo } from "preact/hooks";
import type { StepsAnswer } from "../../api/steps";
import type { Diagnosis } from "../../api/types";
import { drawHeat, type HeatMark, heatHeight } from "../../charts/heatmap";
import { Plot } from "../../charts/Plot";
import { formatInt, formatMeasured, formatPercent } from "../../format";
import { lang, t } from "../../i18n";
import { choiceParam } from "../../state/params";
import { showOnTimeline } from "../../state/store";
import { gpuName, manyHosts } from "../../ui/gpu";
import { ScaleBar } from "../../ui/ScaleBar";
import { Term } from "../../ui/Term";
import { blaming } from "./Blame";

const PS_PER_MS = 1e9;
const METRICS = ["late", "busy", "compute", "wait", "wall"] as const;
type Metric = (typeof METRICS)[number];
const heatMetric = choiceParam("heat", METRICS, { ofProfile: false });

/** The cells of a metric, `[gpu][column]`: milliseconds, or shares of the GPU's own step (`busy`). */
export function heatValues(answer: StepsAnswer, metric: Metric): (number | null)[][] {
  return answer.wall_ps.map((row, gpu) =>
    row.map((wall, column) => {
      if (wall === null) return null;
      const part = (name: string) => answer.parts_ps[name]?.[gpu]?.[column] ?? 0;
      const late = answer.late_ps?.[gpu]?.[column] ?? null;
      if (metric === "late") return late === null ? null : late / PS_PER_MS;
      if (metric === "busy") return wall > 0 ? part("compute") / wall : null;
      if (metric === "wall") return wall / PS_PER_MS;
      return part(metric === "wait" ? "communication_wait" : "compute") / PS_PER_MS;
    }),
  );
}

const hasMetric = (answer: StepsAnswer, metric: Metric): boolean =>
  metric === "late"
    ? !!answer.late_ps?.some((row) => row.some((value) => value !== null))
    : metric !== "wait" || "communication_wait" in answer.parts_ps;

const mean = (values: readonly (number | null)[]): number | null => {
  const known = values.filter((value): value is number => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};

/** GPU by step: who comes late, who computes longer, who waits. */
export function Heat({ answer, result }: { answer: StepsAnswer; result: Diagnosis }) {
  const offered = METRICS.filter((metric) => hasMetric(answer, metric));
  const metric = offered.includes(heatMetric.value) ? heatMetric.value : offered[0];
  const language = lang.value;
  const gpus = answer.gpus.map(({ host, gpu }) => ({ host, id: gpu }));
  const hosts = manyHosts(gpus);
  const values = useMemo(() => heatValues(answer, metric), [answer, metric]);
  const culprits = useMemo(() => {
    const named = new Set(blaming(result).flatMap(({ gpus: list }) => list.map(({ host, id }) => `${host}|${id}`)));
    return new Set(gpus.flatMap(({ host, id }, i) => (named.has(`${host}|${id}`) ? [i] : [])));
  }, [answer, result]);
  if (!answer.steps.length || !gpus.length) return <p class="state">{t("steps_missing")}</p>;
  const share = metric === "busy";
  const show = (value: number | null) => (share ? formatPercent(value) : formatMeasured(value));
  const all = values.flat().filter((value): value is number => value !== null);
  const most = share ? 1 : Math.max(...all, 0);
  const names = gpus.map((gpu) => gpuName(gpu, hosts));
  const means = values.map(mean);
  const order = means
    .map((value, i) => ({ value, i }))
    .filter(({ value }) => value !== null)
    .sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
  const [first, last] = [order[0], order[order.length - 1]].map((at) => show(at?.value ?? null));
  const summary = order.length
    ? t(first === last ? "gpus_heat_same" : "gpus_heat_summary", {
        what: t(`heat_${metric}`),
        most: names[order[0].i],
        value: first,
        least: names[order[order.length - 1].i],
        least_value: last,
      })
    : "";
  const left = hosts ? 210 : 90;
  return (
    <>
      <p class="sentence">{summary}</p>
      <Plot<HeatMark>
        name={`gpus-${metric}`}
        title={t("gpus_heat_title", { what: t(`heat_${metric}`) })}
        summary={summary}
        height={heatHeight(names.length)}
        depends={[values, most, language, culprits]}
        draw={(scene) =>
          drawHeat(
            scene,
            {
              rows: names,
              columns: answer.steps.map(({ number }) => String(number)),
              values,
              most,
              marked: culprits,
              text: (row, column) =>
                `${names[row]} · ${t("step_n", { n: formatInt(answer.steps[column].number) })}\n${t(`heat_${metric}`)}: ${show(values[row][column])}`,
            },
            Math.min(left, scene.width / 3),
          )
        }
        onChoose={(mark) => {
          const { start_ps, end_ps } = answer.steps[mark.column];
          const { host, gpu } = answer.gpus[mark.row];
          showOnTimeline({ host, gpus: [gpu], startMs: start_ps / PS_PER_MS, endMs: end_ps / PS_PER_MS });
        }}
        legend={<ScaleBar label={t(`heat_${metric}`)} low={show(0)} high={show(most)} />}
        legendText={`${t(`heat_${metric}`)}: ${show(0)} – ${show(most)}`}
        tools={
          <span class="tool">
            <Term id={`heat_${metric}`}>{t("gpus_heat_by")}</Term>
            <select
              aria-label={t("gpus_heat_by")}
              value={metric}
              onChange={(event) => {
                heatMetric.value = METRICS.find((each) => each === event.currentTarget.value) ?? "late";
              }}
            >
              {offered.map((each) => (
                <option key={each} value={each}>
                  {t(`heat_${each}`)}
                </option>
              ))}
            </select>
          </span>
        }
      />
      {culprits.size ? <p class="muted hint">{t("gpus_heat_marked")}</p> : null}
    </>
  );
}
