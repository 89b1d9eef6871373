import { getJson, type RequestOptions } from "./client";
import type { ProfileId } from "./types";

export interface Gap {
  lane: number;
  host: string;
  gpu: number;
  start_ps: number;
  end_ps: number;
  duration_ms: number;
  step: number | null;
  cause: string;
  causes_ms: Record<string, number>;
  before: string | null;
  after: string | null;
  thread: string | null;
  evidence: string | null;
  evidence_start_ps: number | null;
  evidence_end_ps: number | null;
}

export interface GapHistogram {
  /** Bin i holds gaps of edge i up to edge i + 1; the last has no upper edge. */
  edges_us: number[];
  causes: Record<string, { count: number[]; total_ms: number[] }>;
}

export interface GapsAnswer {
  total: number;
  total_ms: number;
  matching: number;
  truncated: boolean;
  gaps: Gap[];
  histogram: GapHistogram;
}

export function fetchGaps(
  { run, session }: ProfileId,
  filter: { cause: string; lane: number | null; limit: number },
  options?: RequestOptions,
): Promise<GapsAnswer> {
  const params: Record<string, string | number> = { run, session, limit: filter.limit };
  if (filter.cause) params.cause = filter.cause;
  if (filter.lane !== null) params.lane = filter.lane;
  return getJson("gaps", params, options);
}
