import { Resource } from "../state/resource";
import { getJson } from "./client";

export interface CollectiveGpu {
  lane: number;
  host: string;
  gpu: number;
  moving_ms: number | null;
  waiting_ms: number | null;
  unsplit_ms: number | null;
  hidden_ms: number | null;
  matched: number;
  unmatched: number;
  last: number;
  behind_ms: number | null;
}

export interface CollectiveRow {
  group: number;
  kind: string;
  name: string;
  op: string | null;
  size_bytes: number | null;
  count: number;
  inside_ms: number;
  wait_ms: number;
  moving_ms: number;
  algorithm_gb_per_s: number | null;
  bus_gb_per_s: number | null;
  per_gpu: {
    lane: number;
    count: number;
    inside_ms: number;
    wait_ms: number;
    moving_ms: number;
    last: number;
    behind_ms: number | null;
  }[];
}

export interface CollectivesAnswer {
  method: "one_clock" | "aligned" | "durations" | null;
  error_ms: number | null;
  missing_ranks: number[];
  gpus: CollectiveGpu[];
  groups: { id: number; name: string | null; lanes: number[] }[];
  rows: CollectiveRow[];
  total_rows: number;
  truncated: boolean;
}

export const collectivesResource = new Resource<CollectivesAnswer>((profile, _lang, options) =>
  getJson("collectives", { ...profile }, options),
);
