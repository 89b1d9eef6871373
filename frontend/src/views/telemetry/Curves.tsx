import { useMemo } from "preact/hooks";
import {
  fetchLive,
  fetchSeries,
  type LiveAnswer,
  type Metric,
  MOST_METRICS,
  type SeriesAnswer,
  type TelemetryAnswer,
} from "../../api/telemetry";
import type { ProfileId } from "../../api/types";
import { paintOf } from "../../charts/palette";
import { SeriesPlot } from "../../charts/SeriesPlot";
import type { Band } from "../../charts/series";
import { formatInt, formatMeasured, formatNumber } from "../../format";
import { hasMessage, lang, plural, t, tId } from "../../i18n";
import { dark } from "../../state/host";
import { Remote } from "../../state/remote";
import { useLoad } from "../../state/useLoad";
import { type Column, DataTable } from "../../ui/DataTable";
import { LoadedView } from "../../ui/LoadedView";
import { Term } from "../../ui/Term";
import {
  type AxisKind,
  type GpuLine,
  gpuLines,
  linesOf,
  MOST_LINES,
  statsOf,
  stepAt,
  throttleSums,
  timeOfStep,
  unitOf,
  wholeWindow,
} from "./data";
import { type EventRow, Events, eventRows } from "./Events";
import { type Follow, isLive, LAST_MINUTES, lastMinutes, secondsShown, stillWindow, useFollow, wanted } from "./follow";
import { StepTimes } from "./Steps";
import { axisOf, chosenMetrics, gpuSort, shownWindow, type Window } from "./state";
import { clock, throttleSentence } from "./words";

const series = new Remote<SeriesAnswer | LiveAnswer>();

const USUAL = ["utilization_percent", "power_watts", "temperature_celsius", "sm_clock_mhz", "memory_used_bytes"];
/** Bits have no height: they are the bands of throttling. */
const NO_CURVE = new Set(["clock_event_reasons"]);
const POINTS = 700;
const NO_SERIES: SeriesAnswer = { start_unix_ms: null, end_unix_ms: null, series: [] };

export const metricName = (id: string): string => tId("metric", id);

/** What is drawn: what was chosen and is there, else the usual ones. */
export function metricsShown(metrics: readonly Metric[], chosen: readonly string[]): Metric[] {
  const there = metrics.filter(({ id }) => !NO_CURVE.has(id));
  const wanted = there.filter(({ id }) => chosen.includes(id));
  if (wanted.length) return wanted.slice(0, MOST_METRICS);
  const usual = there.filter(({ id }) => USUAL.includes(id));
  return usual.length ? usual : there.slice(0, 3);
}

function MetricChoice({ metrics, shown }: { metrics: readonly Metric[]; shown: readonly Metric[] }) {
  const ids = shown.map(({ id }) => id);
  const there = metrics.filter(({ id }) => !NO_CURVE.has(id));
  return (
    <details>
      <summary>{t("metrics_choose", { n: formatInt(shown.length), total: formatInt(there.length) })}</summary>
      <ul class="metric-choice">
        {there.map(({ id }) => {
          const on = ids.includes(id);
          return (
            <li key={id}>
              <label>
                <input
                  type="checkbox"
                  checked={on}
                  disabled={(on && ids.length === 1) || (!on && ids.length >= MOST_METRICS)}
                  onChange={() => {
                    chosenMetrics.value = on ? ids.filter((each) => each !== id) : [...ids, id];
                  }}
                />
                {metricName(id)}
              </label>
              {hasMessage(`metric_${id}_hint`) ? <span class="muted"> {tId("metric", `${id}_hint`)}</span> : null}
            </li>
          );
        })}
      </ul>
    </details>
  );
}

/** Pausing and going on, and how much of the end is shown. */
function FollowTools({ follow, data }: { follow: Follow; data: SeriesAnswer | LiveAnswer | null }) {
  const steps = isLive(data) ? data.last_steps.flatMap(({ step }) => step ?? []) : [];
  return (
    <>
      <button
        type="button"
        aria-pressed={follow.on}
        onClick={() => {
          wanted.value = !follow.on;
          if (wanted.value) shownWindow.value = null;
        }}
      >
        {t(follow.on ? "follow_pause" : "follow_go_on")}
      </button>
      <label>
        {t("follow_last")}
        <select
          value={lastMinutes.value}
          onChange={(event) => {
            const { value } = event.currentTarget;
            lastMinutes.value = LAST_MINUTES.find((each) => each === value) ?? "all";
          }}
        >
          {LAST_MINUTES.map((each) => (
            <option key={each} value={each}>
              {each === "all" ? t("follow_all") : t("follow_minutes", { n: each })}
            </option>
          ))}
        </select>
      </label>
      {follow.on && isLive(data) ? (
        <span class="muted" role="status">
          {t("follow_now", { time: clock(data.end_unix_ms ?? data.now_unix_ms) })}
          {steps.length ? ` · ${t("follow_step", { n: formatInt(Math.max(...steps)) })}` : ""}
        </span>
      ) : null}
    </>
  );
}

interface ToolbarProps {
  stepsKnown: boolean;
  whole: Window | null;
  follow: Follow;
  data: SeriesAnswer | LiveAnswer | null;
}

function Toolbar({ stepsKnown, whole, follow, data }: ToolbarProps) {
  const zoomed = shownWindow.value !== null;
  return (
    <div class="filters">
      {stepsKnown ? (
        <label>
          {t("axis")}
          <select
            value={axisOf.value}
            onChange={(event) => {
              axisOf.value = event.currentTarget.value === "step" ? "step" : "time";
            }}
          >
            <option value="time">{t("axis_time")}</option>
            <option value="step">{t("axis_step")}</option>
          </select>
        </label>
      ) : null}
      {zoomed ? (
        <button
          type="button"
          onClick={() => {
            shownWindow.value = null;
          }}
        >
          {t("zoom_out_all")}
        </button>
      ) : (
        <span class="muted">{t("zoom_hint")}</span>
      )}
      <NarrowButtons whole={whole} />
      {follow.offered ? <FollowTools follow={follow} data={data} /> : null}
    </div>
  );
}

/** Zooming without a pointer: the half around the middle. */
function NarrowButtons({ whole }: { whole: Window | null }) {
  const narrow = () => {
    const now = shownWindow.value ?? whole;
    if (!now) return;
    const quarter = (now.endMs - now.startMs) / 4;
    if (quarter > 1) shownWindow.value = { startMs: now.startMs + quarter, endMs: now.endMs - quarter };
  };
  const move = (share: number) => {
    const now = shownWindow.value;
    if (!now) return;
    const by = (now.endMs - now.startMs) * share;
    shownWindow.value = { startMs: now.startMs + by, endMs: now.endMs + by };
  };
  return (
    <span class="buttons">
      <button type="button" aria-label={t("pan_left")} disabled={!shownWindow.value} onClick={() => move(-0.25)}>
        ←
      </button>
      <button type="button" aria-label={t("zoom_in")} onClick={narrow}>
        +
      </button>
      <button type="button" aria-label={t("pan_right")} disabled={!shownWindow.value} onClick={() => move(0.25)}>
        →
      </button>
    </span>
  );
}

const BAND_STRENGTH = "38";
const MOST_BANDS = 400;

/** Throttling behind the curves. */
function bandsOf(rows: readonly EventRow[], gpus: readonly GpuLine[], isDark: boolean): Band[] {
  const names = new Set(gpus.map(({ name }) => name));
  return rows
    .filter(({ name }) => names.has(name))
    .flatMap(({ happenings }) => happenings)
    .slice(0, MOST_BANDS)
    .map(({ kind, start, end, text }) => ({
      start,
      end,
      color: `${paintOf(`event_${kind}`, isDark).color}${BAND_STRENGTH}`,
      label: text,
    }));
}

interface GpuRow {
  gpu: GpuLine;
  model: string | null;
  samples: number;
  stats: Map<string, { mean: number | null; max: number | null }>;
  throttled: Map<string, number>;
}

function GpuTable({ rows, metrics }: { rows: readonly GpuRow[]; metrics: readonly Metric[] }) {
  const kinds = ["thermal", "power", "other"].filter((kind) => rows.some(({ throttled }) => throttled.get(kind)));
  const columns: Column<GpuRow>[] = [
    {
      key: "gpu",
      label: t("gpu"),
      value: (row) => rows.indexOf(row),
      csv: (row) => row.gpu.name,
      cell: (row) => row.gpu.name,
    },
    { key: "model", label: t("gpu_model"), value: (row) => row.model },
    {
      key: "samples",
      label: t("gpu_samples"),
      hint: t("gpu_samples_hint"),
      number: true,
      value: (row) => row.samples,
      cell: (row) => formatInt(row.samples),
    },
    ...kinds.map(
      (kind): Column<GpuRow> => ({
        key: `throttled_${kind}`,
        label: tId("category", `event_${kind}`),
        hint: tId("category_hint", `event_${kind}`),
        csvLabel: `throttled_${kind}_s`,
        number: true,
        value: (row) => row.throttled.get(kind) ?? 0,
        cell: (row) => (row.throttled.get(kind) ? formatMeasured((row.throttled.get(kind) ?? 0) * 1000) : "0"),
      }),
    ),
    ...metrics.flatMap(({ id, unit, counter }): Column<GpuRow>[] => {
      const { label } = unitOf(unit);
      const show = (value: number | null | undefined) =>
        value === null || value === undefined ? "–" : `${formatNumber(value)} ${label}`;
      const of = (row: GpuRow) => row.stats.get(id);
      const most: Column<GpuRow> = {
        key: `${id}_max`,
        label: t(counter ? "metric_total" : "metric_max", { metric: metricName(id) }),
        number: true,
        value: (row) => of(row)?.max ?? null,
        cell: (row) => show(of(row)?.max),
        csvLabel: `${id}_max${label ? ` (${label})` : ""}`,
      };
      if (counter) return [most];
      return [
        {
          key: `${id}_mean`,
          label: t("metric_mean", { metric: metricName(id) }),
          number: true,
          value: (row) => of(row)?.mean ?? null,
          cell: (row) => show(of(row)?.mean),
          csvLabel: `${id}_mean${label ? ` (${label})` : ""}`,
        },
        most,
      ];
    }),
  ];
  return (
    <DataTable name="telemetry" label={t("gpu_table")} rows={rows} columns={columns} order={gpuSort} tallest={400} />
  );
}

interface PartProps {
  answer: TelemetryAnswer;
  data: SeriesAnswer;
  metrics: readonly Metric[];
  axis: AxisKind;
  /** What is shown; null: all. */
  window: Window | null;
}

function Part({ answer, data, metrics, axis, window }: PartProps) {
  const isDark = dark.value;
  const gpus = useMemo(() => gpuLines(answer.recordings), [answer]);
  const rows = useMemo(() => eventRows(answer, gpus, axis, data.series), [answer, gpus, axis, data, lang.value]);
  const names = { low: t("line_low"), median: t("line_median"), high: t("line_high") };
  const charts = useMemo(
    () =>
      metrics.map((metric) => ({
        metric,
        unit: unitOf(metric.unit),
        ...linesOf(gpus, data.series, metric.id, axis, unitOf(metric.unit).factor, names),
      })),
    [metrics, gpus, data, axis, lang.value],
  );
  const toAxis = (ms: number): number | null => (axis === "time" ? ms / 1000 : stepAt(data.series, ms));
  const ends = charts.flatMap(({ times }) => (times.length ? [times[0], times[times.length - 1]] : []));
  const whole = wholeWindow(answer);
  const [from, to] =
    axis === "time" && (window ?? whole)
      ? [((window ?? whole)?.startMs ?? 0) / 1000, ((window ?? whole)?.endMs ?? 0) / 1000]
      : [Math.min(...ends), Math.max(...ends)];
  // One axis for all charts, whatever each has values for.
  const zoom = to > from && Number.isFinite(to - from) ? { start: from, end: to } : null;
  const onZoom = (range: { start: number; end: number } | null) => {
    if (!range) {
      shownWindow.value = null;
      return;
    }
    const [startMs, endMs] =
      axis === "time"
        ? [range.start * 1000, range.end * 1000]
        : [timeOfStep(data.series, range.start), timeOfStep(data.series, range.end)];
    if (startMs !== null && endMs !== null && endMs > startMs) shownWindow.value = { startMs, endMs };
  };
  const bands = useMemo(() => bandsOf(rows, gpus, isDark), [rows, gpus, isDark]);
  const marks = useMemo(() => {
    const spans = answer.recordings.flatMap(({ spans: all }) => all.filter(({ kind }) => kind === "profile"));
    const found = spans.map(({ start_unix_ms, step }) =>
      axis === "step" && step !== null ? step : toAxis(start_unix_ms),
    );
    const { profile } = answer;
    // The profile is one that the monitor took, or somebody else's.
    const taken = spans.some(
      ({ start_unix_ms, end_unix_ms }) =>
        profile && start_unix_ms <= profile.end_unix_ms && end_unix_ms >= profile.start_unix_ms,
    );
    if (profile && !taken) found.push(toAxis(profile.start_unix_ms));
    return found.flatMap((at) => (at === null ? [] : [{ at, label: t("category_event_profile") }]));
  }, [answer, axis, data]);
  const sums = throttleSums(answer, gpus);
  const sentence = throttleSentence(answer, sums);
  const table = gpus.map((gpu): GpuRow => {
    const own = data.series.filter((one) => gpu.places.some(([rec, id]) => one.recording === rec && one.gpu === id));
    const recorded = gpu.places.map(([rec, id]) =>
      answer.recordings.find((one) => one.id === rec)?.gpus.find((one) => one.id === id),
    );
    return {
      gpu,
      model: recorded.find((one) => one?.name)?.name ?? null,
      samples: recorded.reduce((sum, one) => sum + (one?.samples ?? 0), 0),
      stats: new Map(
        metrics.map(({ id, unit }) => [
          id,
          statsOf(
            own.filter(({ metric }) => metric === id),
            unitOf(unit).factor,
          ),
        ]),
      ),
      throttled: new Map(sums.filter((sum) => sum.gpu === gpu).map(({ kind, seconds }) => [kind, seconds])),
    };
  });
  const summaryOf = (metric: Metric): string => {
    const { label } = unitOf(metric.unit);
    const parts = table
      .filter(({ stats }) => stats.get(metric.id)?.mean !== null)
      .slice(0, MOST_LINES)
      .map(({ gpu, stats }) => {
        const { mean, max } = stats.get(metric.id) ?? { mean: null, max: null };
        return t("curve_gpu", {
          gpu: gpu.name,
          mean: `${formatNumber(mean)} ${label}`,
          max: `${formatNumber(max)} ${label}`,
        });
      });
    return `${parts.join("; ")}. ${sentence}`;
  };
  return (
    <>
      <Events rows={rows} axis={axis} from={from} to={to} summary={sentence} />
      <p class="sentence">{sentence}</p>
      {charts.map(({ metric, unit, times, lines }) =>
        lines.length ? (
          <SeriesPlot
            key={metric.id}
            name={`telemetry-${metric.id}`}
            title={metricName(metric.id)}
            summary={summaryOf(metric)}
            tools={
              hasMessage(`metric_${metric.id}_hint`) ? (
                <Term text={tId("metric", `${metric.id}_hint`)}>{t("definition")}</Term>
              ) : null
            }
            depends={[lines, bands, marks, zoom?.start, zoom?.end, lang.value]}
            height={200}
            time={axis === "time" ? "unix" : ""}
            unit={unit.label}
            lines={lines}
            times={times}
            bands={bands}
            marks={marks}
            range={metric.unit === "percent" ? [0, 100] : [0, null]}
            zoom={zoom}
            onZoom={onZoom}
          />
        ) : null,
      )}
      {gpus.length > MOST_LINES ? <p class="hint muted">{plural("curves_many", gpus.length)}</p> : null}
      {charts.length ? <p class="hint muted">{t("curves_key")}</p> : null}
      <StepTimes recordings={answer.recordings} axis={axis} zoom={zoom} onZoom={onZoom} />
      {table.length ? (
        <>
          <h3 class="apart">{t("gpu_table")}</h3>
          <GpuTable rows={table} metrics={metrics} />
        </>
      ) : null}
    </>
  );
}

/** Each metric over all GPUs, with what held them back and when profiles were taken. */
export function Curves({ answer, profile }: { answer: TelemetryAnswer; profile: ProfileId }) {
  const metrics = useMemo(() => metricsShown(answer.metrics, chosenMetrics.value), [answer, chosenMetrics.value]);
  const axis: AxisKind = answer.steps_known && axisOf.value === "step" ? "step" : "time";
  const ids = metrics.map(({ id }) => id);
  const follow = useFollow(answer, series.value.data);
  const window = stillWindow(answer, follow.offered);
  const live = follow.on ? [follow.look, secondsShown()] : null;
  const key = JSON.stringify([ids, window, live, answer.recordings.map(({ end_unix_ms }) => end_unix_ms)]);
  const state = useLoad<SeriesAnswer | LiveAnswer>(series, profile, key, (options) =>
    // Without NVML there are steps and events, and no curve to ask for.
    !ids.length
      ? Promise.resolve(NO_SERIES)
      : follow.on
        ? fetchLive(profile, ids, secondsShown(), POINTS, options)
        : fetchSeries(profile, ids, window, POINTS, options),
  );
  const shown = (data: SeriesAnswer | LiveAnswer): Window | null => {
    const { start_unix_ms: startMs, end_unix_ms: endMs } = data;
    return isLive(data) && startMs !== null && endMs !== null ? { startMs, endMs } : window;
  };
  return (
    <>
      <Toolbar stepsKnown={answer.steps_known} whole={wholeWindow(answer)} follow={follow} data={state.data} />
      {metrics.length ? <MetricChoice metrics={answer.metrics} shown={metrics} /> : null}
      <LoadedView state={state} label={t("loading_telemetry")}>
        {(data) => <Part answer={answer} data={data} metrics={metrics} axis={axis} window={shown(data)} />}
      </LoadedView>
    </>
  );
}
