import { Resource } from "../state/resource";
import { getJson, type RequestOptions, routeUrl } from "./client";
import type { ProfileId } from "./types";

/** Rows of the kernel table: one for each GPU, or GPUs of the same kind summed up. */
export type By = "kernel" | "gpu";

export type TensorClass = "used" | "unused" | "not_eligible" | "unknown";

export interface KernelDevice {
  host: string;
  id: number;
  name: string | null;
  kernel_ms: number;
  window_ms: number | null;
  /** Shares of one, weighted by kernel time. */
  occupancy: number | null;
  occupancy_coverage: number | null;
  achieved_occupancy: number | null;
  sm_share: number | null;
  sm_efficiency: number | null;
  tensor_cores_ms: Record<TensorClass, number> | null;
  families_ms: Record<string, number>;
}

export interface KernelRow {
  id: number;
  /** Index of its GPU; null where the row stands for several. */
  device: number | null;
  devices: number[];
  name: string;
  op: string;
  calls: number;
  total_ms: number;
  mean_us: number;
  min_us: number;
  max_us: number;
  share: number;
  registers: number | null;
  static_shared_bytes: number | null;
  dynamic_shared_bytes: number | null;
  grid: number[] | null;
  block: number[] | null;
  blocks: number | null;
  occupancy: number | null;
  limiter: string | null;
  recorded_occupancy: number | null;
  occupancy_differs: boolean;
  achieved_occupancy: number | null;
  waves: number | null;
  tail: number | null;
  sm_share: number | null;
  wave_blocks: number | null;
  family: string;
  persistent: boolean;
  tensor_cores: TensorClass | null;
  data_type: string | null;
  bound: "memory" | "compute" | null;
}

export interface KernelsAnswer {
  devices: KernelDevice[];
  rows: KernelRow[];
  by: By;
  total_rows: number;
  truncated: boolean;
}

export interface TreeNode {
  /** Index of an earlier node; -1 at the root. */
  parent: number;
  kind: "scope" | "op" | "kernel";
  name: string;
  total_ms: number;
  calls: number;
  share: number;
  occupancy: number | null;
  achieved_occupancy: number | null;
  sm_share: number | null;
  tensor_cores: TensorClass | null;
  family: string | null;
}

export interface TreeAnswer {
  nodes: TreeNode[];
  total_ms: number;
  truncated: boolean;
}

/** Tables are `[step][device]`. */
export interface FillingAnswer {
  devices: number[];
  steps: number[];
  complete: boolean[];
  sm_efficiency: (number | null)[][];
  occupancy: (number | null)[][];
  truncated: boolean;
}

export interface FusionCandidate {
  device: number;
  kernels: number;
  runs: number;
  total_ms: number;
  saving_ms: number;
  saving_per_step_ms: number | null;
  names: string[];
  ops: string[];
  start_ps: number;
  end_ps: number;
}

export interface FusionAnswer {
  candidates: FusionCandidate[];
  saving_ms: number[];
  truncated: boolean;
}

/** What occupancy depends on. */
export type Knob = "registers" | "shared_bytes" | "block_threads";

export interface Curve {
  x: number[];
  occupancy: number[];
  limiter: (string | null)[];
}

export interface StaircaseAnswer {
  kernel: number;
  name: string;
  now: (Record<Knob, number> & { occupancy: number; active_blocks: number; limiter: string | null }) | null;
  curves: Record<Knob, Curve> | null;
  next: { changes: { what: Knob; from: number; to: number }[]; occupancy: number; active_blocks: number }[] | null;
}

export const kernelTables: Record<By, Resource<KernelsAnswer>> = {
  kernel: new Resource((profile, _lang, options) => getJson("kernels", { ...profile, by: "kernel" }, options)),
  gpu: new Resource((profile, _lang, options) => getJson("kernels", { ...profile, by: "gpu" }, options)),
};

export const fillingResource = new Resource<FillingAnswer>((profile, _lang, options) =>
  getJson("kernels/filling", { ...profile }, options),
);

export const fusionResource = new Resource<FusionAnswer>((profile, _lang, options) =>
  getJson("kernels/fusion", { ...profile }, options),
);

export const fetchTree = ({ run, session }: ProfileId, device: number | null, options?: RequestOptions) =>
  getJson<TreeAnswer>("kernels/tree", { run, session, device: device === null ? "" : device }, options);

export const fetchStaircase = ({ run, session }: ProfileId, kernel: number, options?: RequestOptions) =>
  getJson<StaircaseAnswer>("kernels/staircase", { run, session, kernel }, options);

/** Where the whole table lies as a file. */
export const csvUrl = ({ run, session }: ProfileId, by: By, lang: string): string =>
  routeUrl("kernels.csv", { run, session, by, lang }).href;
