import { type Bins, parseBins } from "./binary";
import { getBytes, getJson, type RequestOptions } from "./client";
import type { ProfileId } from "./types";

/** What a stretch of the timeline holds. */
export interface RangeAnswer {
  start_ps: number;
  end_ps: number;
  lanes: { lane: number; ms: Record<string, number>; communication_wait_ms: number }[];
  kernels: { name: string; total_ms: number; calls: number }[];
}

export interface Hit {
  lane: number;
  start_ps: number;
  end_ps: number;
  name: string;
  op: string;
}

export interface FindAnswer {
  matching: number;
  truncated: boolean;
  hits: Hit[];
}

export interface FoundGap {
  lane: number;
  start_ps: number;
  end_ps: number;
  cause: string;
}

export interface StreamsAnswer {
  streams: { name: string; events: number }[];
  events: { stream: number[]; start_ps: number[]; end_ps: number[]; category: number[]; name: number[] };
  names: string[];
  launches: {
    threads: string[];
    names: string[];
    thread: number[];
    start_ps: number[];
    end_ps: number[];
    name: number[];
  };
  count: number;
  truncated: boolean;
}

const id = ({ run, session }: ProfileId) => ({ run, session });
const range = (start: number, end: number) => ({ start_ps: Math.floor(start), end_ps: Math.ceil(end) });

export const fetchRange = (profile: ProfileId, start: number, end: number, options?: RequestOptions) =>
  getJson<RangeAnswer>("timeline/range", { ...id(profile), ...range(start, end) }, options);

export const fetchFound = (
  profile: ProfileId,
  query: string,
  start: number,
  end: number,
  limit: number,
  last = false,
  options?: RequestOptions,
) =>
  getJson<FindAnswer>(
    "timeline/find",
    { ...id(profile), query, ...range(start, end), limit, last: last ? 1 : 0 },
    options,
  );

export const fetchNextGap = (
  profile: ProfileId,
  time: number,
  back: boolean,
  shortest: number,
  lane: number | null,
  options?: RequestOptions,
) =>
  getJson<{ gap: FoundGap | null }>(
    "timeline/next_gap",
    {
      ...id(profile),
      time_ps: Math.round(time),
      back: back ? 1 : 0,
      shortest_ps: Math.max(1, Math.round(shortest)),
      ...(lane === null ? {} : { lane }),
    },
    options,
  );

export async function fetchWaits(
  profile: ProfileId,
  start: number,
  end: number,
  width: number,
  options?: RequestOptions,
): Promise<Bins> {
  return parseBins(await getBytes("timeline/waits", { ...id(profile), ...range(start, end), width }, options));
}

export const fetchStreams = (
  profile: ProfileId,
  lane: number,
  start: number,
  end: number,
  limit: number,
  options?: RequestOptions,
) => getJson<StreamsAnswer>("timeline/streams", { ...id(profile), lane, ...range(start, end), limit }, options);
