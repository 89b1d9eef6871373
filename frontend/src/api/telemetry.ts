import { Resource } from "../state/resource";
import { getJson, type RequestOptions } from "./client";
import type { ProfileId } from "./types";

/** What the companion writer recorded beside training; times in ms since 1970. */

export type ThrottleKind = "thermal" | "power" | "other";

export interface Throttled {
  kind: ThrottleKind;
  reasons: string[];
  start_unix_ms: number;
  end_unix_ms: number;
  start_step: number | null;
  end_step: number | null;
}

export interface RecordedGpu {
  id: number;
  label: string;
  uuid: string | null;
  pci_bus_id: string | null;
  name: string | null;
  limits: Record<string, number>;
  samples: number;
  lane: number | null;
  metrics: string[];
  throttled: Throttled[];
}

export interface Span {
  kind: string;
  start_unix_ms: number;
  end_unix_ms: number;
  step: number | null;
  note: string;
}

export interface StepSeries {
  count: number;
  unix_ms: number[];
  step: number[];
  min_ms: number[];
  mean_ms: number[];
  max_ms: number[];
  samples_per_s: (number | null)[];
  profiled: boolean[];
}

export interface EnvironmentProblem {
  code?: string;
  severity: string;
  text: string;
  fix: string[];
}

export interface Environment {
  problems?: EnvironmentProblem[];
  [part: string]: unknown;
}

export interface Recording {
  id: number;
  run: string;
  host: string;
  process_id: number | null;
  simulated: boolean;
  memory_growth: boolean | null;
  judged: boolean;
  joined: boolean | null;
  not_joined_because: string | null;
  start_unix_ms: number | null;
  end_unix_ms: number | null;
  first_step: number | null;
  last_step: number | null;
  gpus: RecordedGpu[];
  spans: Span[];
  spans_truncated: boolean;
  steps: StepSeries | null;
  environment: Environment;
  notes: string[];
}

export interface Metric {
  id: string;
  tag: string;
  unit: string;
  counter: boolean;
  series: number;
}

export interface TelemetryAnswer {
  recordings: Recording[];
  metrics: Metric[];
  profile: { start_unix_ms: number; end_unix_ms: number } | null;
  steps_known: boolean;
  notes: string[];
  problems: string[];
}

export interface Series {
  recording: number;
  gpu: number;
  metric: string;
  samples: number;
  folded: boolean;
  unix_ms: number[];
  step: (number | null)[];
  min: (number | null)[] | null;
  mean: (number | null)[];
  max: (number | null)[] | null;
}

export interface SeriesAnswer {
  start_unix_ms: number | null;
  end_unix_ms: number | null;
  series: Series[];
}

export interface LiveAnswer extends SeriesAnswer {
  now_unix_ms: number;
  running: boolean;
  last_steps: { recording: number; step: number | null }[];
}

export interface SweepPoint {
  batch_size: number;
  samples_per_s: number | null;
  step_ms: number | null;
  peak_bytes: number | null;
  problem: string | null;
}

export interface Sweep {
  run: string;
  unix_ms: number;
  fixed_ms: number | null;
  per_sample_ms: number | null;
  recommended: number | null;
  points: SweepPoint[];
}

export const telemetryResource = new Resource<TelemetryAnswer>(
  (profile, lang, options) => getJson("telemetry", { ...profile, lang }, options),
  true,
);

export const sweepsResource = new Resource<{ sweeps: Sweep[] }>((profile, _lang, options) =>
  getJson("batch_sweeps", { ...profile }, options),
);

export const MOST_METRICS = 16;

export function fetchSeries(
  { run, session }: ProfileId,
  metrics: readonly string[],
  range: { startMs: number; endMs: number } | null,
  points: number,
  options?: RequestOptions,
): Promise<SeriesAnswer> {
  const window: Record<string, string> = range
    ? { start_unix_ms: range.startMs.toFixed(3), end_unix_ms: range.endMs.toFixed(3) }
    : {};
  return getJson("telemetry/series", { run, session, metric: metrics.join(","), points, ...window }, options);
}

/** The end of recordings that still grow. */
export function fetchLive(
  { run, session }: ProfileId,
  metrics: readonly string[],
  seconds: number,
  points: number,
  options?: RequestOptions,
): Promise<LiveAnswer> {
  return getJson("telemetry/live", { run, session, metric: metrics.join(","), seconds, points }, options);
}
