import { getJson, type RequestOptions } from "./client";
import type { Interval } from "./compare";
import type { ProfileId, Severity, Verdict } from "./types";

/** The object of docs/history.md. */

export interface PastSession extends ProfileId {
  time_unix_s: number;
  /** Why it could not be read, or is not compared with the others. */
  problem: string | null;
  verdict: Verdict | null;
  step_ms: number | null;
  steps: number | null;
  /** In the order of `parts`, mean per step. */
  parts_ms: number[] | null;
  window_shares: number[] | null;
  occupancy: number | null;
  findings: { kind: string; name: string; severity: Severity }[];
}

export interface LevelChange {
  metric: "step" | "idle" | "waiting";
  session_index: number;
  is_regression: boolean;
  before_ms: number;
  after_ms: number;
  /** Null where the level before is zero. */
  change: Interval | null;
  confidence: number;
  sessions_before: number;
  sessions_after: number;
  sentence: string;
}

export interface HistoryAnswer {
  headline: string;
  confidence: number;
  parts: string[];
  sessions: PastSession[];
  changes: LevelChange[];
}

/** @param run one run; null: all of the logdir. */
export const fetchHistory = (run: string | null, lang: string, options?: RequestOptions): Promise<HistoryAnswer> =>
  getJson("history", run === null ? { lang } : { run, lang }, options);
