import type { Recording, Series, TelemetryAnswer, ThrottleKind } from "../../api/telemetry";
import type { Line } from "../../charts/series";

/** From recorded series to lines that share one axis. */

export type AxisKind = "time" | "step";

/** One GPU, over all recordings that saw it: a restart goes on with the same line. */
export interface GpuLine {
  key: string;
  name: string;
  /** [recording, GPU in it] */
  places: [number, number][];
}

/** All GPUs in the order in which they were recorded. */
export function gpuLines(recordings: readonly Recording[]): GpuLine[] {
  const hosts = new Set(recordings.map(({ host }) => host)).size > 1;
  const lines = new Map<string, GpuLine>();
  for (const { id, host, gpus } of recordings) {
    for (const gpu of gpus) {
      const key = `${host}|${gpu.uuid ?? gpu.label}`;
      const line = lines.get(key) ?? { key, name: hosts ? `${host} · ${gpu.label}` : gpu.label, places: [] };
      line.places.push([id, gpu.id]);
      lines.set(key, line);
    }
  }
  return [...lines.values()];
}

export interface Unit {
  label: string;
  factor: number;
}

const UNITS: Record<string, Unit> = {
  percent: { label: "%", factor: 1 },
  bytes: { label: "GiB", factor: 2 ** -30 },
  bytes_per_s: { label: "MiB/s", factor: 2 ** -20 },
  watts: { label: "W", factor: 1 },
  celsius: { label: "°C", factor: 1 },
  mhz: { label: "MHz", factor: 1 },
  joules: { label: "kJ", factor: 1e-3 },
  seconds: { label: "s", factor: 1 },
};

/** How values of a unit are shown. */
export const unitOf = (unit: string): Unit => UNITS[unit] ?? { label: "", factor: 1 };

interface Point {
  x: number;
  value: number | null;
}

const MOST_TIMES = 3000;
const BINS = 1200;
/** A jump of so many usual distances is a pause: nothing was recorded there. */
const PAUSE = 5;

const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : 0;
};

/** A GPU's values in order of x; values at one x are one; pauses hold a null. */
export function pointsOf(series: readonly Series[], axis: AxisKind, factor: number): Point[] {
  const sums = new Map<number, { sum: number; count: number }>();
  for (const { unix_ms, step, mean } of series) {
    for (const [i, value] of mean.entries()) {
      const x = axis === "time" ? unix_ms[i] / 1000 : step[i];
      if (value === null || x === null || x === undefined) continue;
      const there = sums.get(x);
      if (there) {
        there.sum += value;
        there.count += 1;
      } else sums.set(x, { sum: value, count: 1 });
    }
  }
  const points = [...sums]
    .map(([x, { sum, count }]): Point => ({ x, value: (sum / count) * factor }))
    .sort((a, b) => a.x - b.x);
  const usual = median(points.slice(1).map(({ x }, i) => x - points[i].x));
  return points.flatMap((point, i) => {
    const before = points[i - 1];
    return before && point.x - before.x > PAUSE * usual
      ? [{ x: (before.x + point.x) / 2, value: null }, point]
      : [point];
  });
}

export interface Aligned {
  times: number[];
  /** For each GPU its value at each time; undefined: it has none there, and its line goes on. */
  values: (number | null | undefined)[][];
}

/** Puts lines on one axis: on their own times, or, when these are too many, on equal parts of the stretch. */
export function align(lines: readonly Point[][], most = MOST_TIMES, bins = BINS): Aligned {
  let times = [...new Set(lines.flatMap((points) => points.map(({ x }) => x)))].sort((a, b) => a - b);
  let place = new Map(times.map((x, i) => [x, i]));
  let at = (x: number): number => place.get(x) ?? 0;
  if (times.length > most) {
    const first = times[0];
    const width = (times[times.length - 1] - first) / bins || 1;
    times = Array.from({ length: bins }, (_, i) => first + (i + 0.5) * width);
    place = new Map();
    at = (x) => Math.min(bins - 1, Math.floor((x - first) / width));
  }
  const values = lines.map((points) => {
    const row = new Array<number | null | undefined>(times.length).fill(undefined);
    for (const { x, value } of points) {
      const i = at(x);
      // A value in a part counts more than the pause beside it.
      if (value !== null || row[i] === undefined) row[i] = value;
    }
    return row;
  });
  return { times, values };
}

/** More GPUs than lines can be told apart. */
export const MOST_LINES = 16;

export interface Drawn {
  times: number[];
  lines: Line[];
}

/** The lines of a metric; of many GPUs the lowest, median and highest value at each time. */
export function linesOf(
  gpus: readonly GpuLine[],
  series: readonly Series[],
  metric: string,
  axis: AxisKind,
  factor: number,
  names: { low: string; median: string; high: string },
): Drawn {
  const points = gpus.map(({ places }) =>
    pointsOf(
      series.filter(
        (one) => one.metric === metric && places.some(([rec, gpu]) => one.recording === rec && one.gpu === gpu),
      ),
      axis,
      factor,
    ),
  );
  const used = gpus.map((_, i) => i).filter((i) => points[i].length);
  if (used.length <= MOST_LINES) {
    const { times, values } = align(used.map((i) => points[i]));
    const lines = used.map((gpu, i): Line => ({ label: gpus[gpu].name, style: gpu, values: values[i] }));
    return { times, lines };
  }
  const { times, values } = align(
    used.map((i) => points[i]),
    0,
    600,
  );
  const at = times.map((_, i) =>
    values
      .map((row) => row[i])
      .filter((value): value is number => typeof value === "number")
      .sort((a, b) => a - b),
  );
  const pick = (choose: (sorted: number[]) => number) => at.map((sorted) => (sorted.length ? choose(sorted) : null));
  return {
    times,
    lines: [
      { label: names.low, style: 0, values: pick((sorted) => sorted[0]) },
      { label: names.median, style: 7, values: pick((sorted) => sorted[sorted.length >> 1]) },
      { label: names.high, style: 1, values: pick((sorted) => sorted[sorted.length - 1]) },
    ],
  };
}

export interface Stats {
  mean: number | null;
  max: number | null;
}

/** Mean and maximum of one GPU's series in what is shown. */
export function statsOf(series: readonly Series[], factor: number): Stats {
  let sum = 0;
  let count = 0;
  let most: number | null = null;
  for (const { mean, max } of series) {
    for (const [i, value] of mean.entries()) {
      if (value === null) continue;
      sum += value;
      count += 1;
      const top = max?.[i] ?? value;
      if (most === null || top > most) most = top;
    }
  }
  return { mean: count ? (sum / count) * factor : null, max: most === null ? null : most * factor };
}

export interface ThrottleSum {
  gpu: GpuLine;
  kind: ThrottleKind;
  seconds: number;
  startStep: number | null;
  endStep: number | null;
}

/** For how long each GPU was throttled for each kind of reason, longest first. */
export function throttleSums({ recordings }: TelemetryAnswer, gpus: readonly GpuLine[]): ThrottleSum[] {
  const sums: ThrottleSum[] = [];
  for (const gpu of gpus) {
    const found = new Map<ThrottleKind, ThrottleSum>();
    for (const [rec, id] of gpu.places) {
      const bands = recordings.find((one) => one.id === rec)?.gpus.find((one) => one.id === id)?.throttled ?? [];
      for (const band of bands) {
        const sum = found.get(band.kind) ?? { gpu, kind: band.kind, seconds: 0, startStep: null, endStep: null };
        sum.seconds += (band.end_unix_ms - band.start_unix_ms) / 1000;
        sum.startStep ??= band.start_step;
        sum.endStep = band.end_step ?? sum.endStep;
        found.set(band.kind, sum);
      }
    }
    sums.push(...found.values());
  }
  return sums.sort((a, b) => b.seconds - a.seconds);
}

/** The stretch of all recordings, in ms since 1970. */
export function wholeWindow({ recordings, profile }: TelemetryAnswer): { startMs: number; endMs: number } | null {
  const starts = recordings.flatMap(({ start_unix_ms }) => (start_unix_ms === null ? [] : [start_unix_ms]));
  const ends = recordings.flatMap(({ end_unix_ms }) => (end_unix_ms === null ? [] : [end_unix_ms]));
  if (!starts.length || !ends.length) return null;
  // A profile that was taken just outside still shows.
  const startMs = Math.min(...starts, profile?.start_unix_ms ?? Number.POSITIVE_INFINITY);
  const endMs = Math.max(...ends, profile?.end_unix_ms ?? Number.NEGATIVE_INFINITY);
  return endMs > startMs ? { startMs, endMs } : { startMs, endMs: startMs + 1 };
}

/** The time at which training was at a step, as far as the samples tell. */
export function timeOfStep(series: readonly Series[], step: number): number | null {
  let best: number | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const one of series) {
    for (const [i, value] of one.step.entries()) {
      if (value === null) continue;
      const distance = Math.abs(value - step);
      if (distance < least) {
        least = distance;
        best = one.unix_ms[i];
      }
    }
  }
  return best;
}

/** The step that training was at, as far as the samples tell: the last one known before a time. */
export function stepAt(series: readonly Series[], unixMs: number): number | null {
  let best: number | null = null;
  let time = Number.NEGATIVE_INFINITY;
  for (const one of series) {
    for (const [i, value] of one.step.entries()) {
      if (value === null || one.unix_ms[i] > unixMs || one.unix_ms[i] < time) continue;
      time = one.unix_ms[i];
      best = value;
    }
  }
  return best;
}

/** Samples a second at a batch size, by the fitted line of step times. */
export const fittedRate = (batch: number, fixedMs: number, perSampleMs: number): number =>
  (batch / Math.max(fixedMs + perSampleMs * batch, 1e-9)) * 1000;
