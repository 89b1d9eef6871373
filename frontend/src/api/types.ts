/** The shapes of docs/http_api.md and of the diagnosis JSON. Times in ms unless a name says otherwise. */

export interface ProfileId {
  run: string;
  session: string;
}

export interface SessionInfo extends ProfileId {
  label: string;
  hosts: string[];
  format: string;
  size_bytes: number;
  modified_unix_s: number;
  /** When it was recorded, whatever a copy made of the files' times. */
  recorded_unix_s?: number;
  /** Of its diagnosis; null while nobody has asked for that. */
  verdict?: Verdict | null;
  problem: string | null;
  /** Sessions that may be one job with this one. */
  related?: {
    session: string;
    sessions: ProfileId[];
    hosts: string[];
    apart_s: number;
  } | null;
}

export interface SessionsAnswer {
  scanning: boolean;
  sessions: SessionInfo[];
  searched: string[];
  logdir: string;
  problems: { path: string; message: string }[];
}

export interface Progress {
  state: string;
  stage: string;
  progress: number;
  /** While it waits for its turn: how many come before it. */
  ahead?: number;
}

export type Verdict = "critical" | "warning" | "ok" | "cannot_tell";
export type Severity = "critical" | "warning" | "info";

export interface GpuRef {
  host: string;
  id: number;
}

export interface Evidence {
  host: string;
  gpu: number | null;
  start_ms: number | null;
  end_ms: number | null;
  thread: string | null;
  step: number | null;
  what: string;
}

export interface Finding {
  kind: string;
  severity: Severity;
  /** What it is about: findings about the profile say what is missing to judge the run. */
  about: "run" | "profile" | "telemetry";
  /** What `share` is: time lost to it, time spent in it, or nothing that it costs. */
  cost: "lost" | "spent" | "none";
  gpus: GpuRef[];
  victims: GpuRef[];
  cause: string | null;
  share: number | null;
  saving_ms_per_step: number | null;
  title: string;
  explanation: string;
  advice: string[];
  /** How to see whether the advice helped. */
  check: string;
  docs: string | null;
  evidence: Evidence[];
}

export interface DeviceResult {
  host: string;
  id: number;
  rank: number | null;
  /** What texts call it, in the language of the diagnosis. */
  label?: string;
  name: string | null;
  wall_ms: number | null;
  compute_ms: number | null;
  communication_ms: number | null;
  communication_wait_ms: number | null;
  /** The part of `communication_ms` spent waiting for the last GPU; the tab adds it where it is known. */
  exposed_wait_ms?: number | null;
  transfer_ms: number | null;
  idle_ms: number | null;
  idle_by_cause_ms: Record<string, number>;
  occupancy: number | null;
}

export interface Diagnosis {
  schema_version: number;
  verdict: Verdict;
  language: string;
  profile: {
    run: string;
    session: string;
    hosts: string[];
    format: string;
    window_ms: number | null;
    recorded_ms: number | null;
    /** Which files of the session could not be read; null or absent where all could. */
    incomplete?: string | null;
    warnings: string[];
  };
  devices: DeviceResult[];
  steps: {
    count: number;
    source: "marked" | "inferred" | "none";
    median_ms: number | null;
    samples_per_s?: number | null;
  };
  findings: Finding[];
}

export interface Lane {
  id: number;
  kind: string;
  host: string;
  gpu: number;
  label: string;
  name: string;
  hosts_file: string;
  intervals: number;
  /** What the timeline adds to the times of the lane's own file. */
  offset_ps?: number;
  /** How wrong that can be; null: unknown, and the lane is on its own clock. */
  offset_error_ps?: number | null;
}

export interface Step {
  number: number;
  complete: boolean;
  start_ps: number;
  end_ps: number;
}

export interface TimelineMeta {
  start_ps: number;
  end_ps: number;
  window: { start_ps: number; end_ps: number } | null;
  profile_start_ms: number;
  categories: string[];
  clock?: { reference: string | null; common: boolean };
  lanes: Lane[];
  steps: Step[];
}

export interface MomentDetails {
  kind: "event" | "gap" | "none";
  category: string | null;
  start_ps: number | null;
  end_ps: number | null;
  name: string | null;
  op: string | null;
  stream: string | null;
  step: number | null;
  gap: {
    causes_ms: Record<string, number>;
    before: string | null;
    after: string | null;
    thread: string | null;
    evidence: string | null;
  } | null;
}
