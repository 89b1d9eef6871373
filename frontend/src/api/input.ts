import { Resource } from "../state/resource";
import { getJson } from "./client";

/** The pipelines that make the batches. */

export interface InputStage {
  name: string;
  /** Indices of the stages that take its elements; empty: the training does. */
  taken_by: number[];
  role: string;
  calls: number;
  busy_ms: number;
  wall_ms: number;
  per_element_ms: number | null;
  parallelism: number | null;
  concurrency: number;
  autotuned: boolean | null;
  buffer: number | null;
  background: boolean;
  threads: string[];
  thread_count: number;
  waited_ms: number;
  utilization: number;
  calls_python: boolean;
}

export interface InputPipeline {
  host: string;
  source: "tf_data" | "python";
  start_ps: number;
  end_ps: number;
  limiting: number | null;
  /** Whether that stage holds up anybody; false where it works ahead and mostly rests. */
  sets_pace: boolean | null;
  fetches: number;
  fetch_ms: number;
  consumers: string[];
  element_bytes: number | null;
  prefetched: boolean;
  cpu_budget: number | null;
  cpu_share: number | null;
  cpu_full: boolean;
  waited: { lane: number; ms: number }[];
  stages: InputStage[];
}

export interface InputAnswer {
  gpus: { lane: number; host: string; gpu: number; wall_ms: number | null; input_ms: number | null }[];
  pipelines: InputPipeline[];
  truncated: boolean;
}

export const inputResource = new Resource<InputAnswer>((profile, _lang, options) =>
  getJson("input", { ...profile }, options),
);
