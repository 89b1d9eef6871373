import { getJson, type Params, type RequestOptions } from "./client";
import type { ProfileId, Severity, Verdict } from "./types";

/** The object of docs/compare.md. Times in ms per unit. */

export type Outcome = "faster" | "slower" | "same" | "inconclusive" | "not_comparable";

export interface Interval {
  value: number;
  low: number;
  high: number;
}

export interface ComparedRun {
  label: string;
  verdict: Verdict;
  format: string;
  gpus: number;
  models: string[];
  hosts: number;
  batch: number | null;
  steps: number;
  step_source: string;
  /** Mean per unit. */
  time_ms: number | null;
  median_step_ms: number | null;
  /** Each step, never per sample. */
  step_ms: (number | null)[];
  occupancy: number | null;
  telemetry: Record<string, number | null>;
}

/** Times, or without steps shares of the window. */
export interface ComparedPart {
  part: string;
  before_ms?: number | null;
  after_ms?: number | null;
  difference_ms?: Interval | null;
  before_share?: number | null;
  after_share?: number | null;
  difference_share?: Interval | null;
}

export type FindingChange = "solved" | "new" | "better" | "worse" | "unchanged" | "cannot_tell";

export interface ComparedFinding {
  kind: string;
  name: string;
  change: FindingChange;
  severity_before: Severity | null;
  severity_after: Severity | null;
  cost_before_ms: number | null;
  cost_after_ms: number | null;
  share_before: number | null;
  share_after: number | null;
  cause_before: string | null;
  cause_after: string | null;
  docs: string;
}

export interface ComparedKernel {
  /** Empty: all that are too many to list. */
  name: string;
  grid: number[] | null;
  block: number[] | null;
  change: "added" | "gone" | "changed";
  calls_before: number | null;
  calls_after: number | null;
  before_ms: number | null;
  after_ms: number | null;
  difference_ms: number | null;
  occupancy_before: number | null;
  occupancy_after: number | null;
}

export interface Comparison {
  outcome: Outcome;
  unit: "step" | "sample" | "window";
  headline: string;
  reasons: string[];
  obstacles: string[];
  confidence: number;
  change: Interval | null;
  before: ComparedRun;
  after: ComparedRun;
  parts: ComparedPart[];
  findings: ComparedFinding[];
  kernels: ComparedKernel[];
  kernel_time_before_ms: number | null;
  kernel_time_after_ms: number | null;
  /** From which batch on grids fill the GPU, where two batches tell. */
  grids: { title: string; kernels: { name: string; sentence: string }[] } | null;
}

export interface Pair {
  before: ProfileId;
  after: ProfileId;
  batchBefore: number | null;
  batchAfter: number | null;
}

export function fetchComparison(pair: Pair, lang: string, options?: RequestOptions): Promise<Comparison> {
  const params: Params = {
    before_run: pair.before.run,
    before_session: pair.before.session,
    after_run: pair.after.run,
    after_session: pair.after.session,
    lang,
  };
  if (pair.batchBefore) params.batch_before = pair.batchBefore;
  if (pair.batchAfter) params.batch_after = pair.batchAfter;
  return getJson("compare", params, options);
}
