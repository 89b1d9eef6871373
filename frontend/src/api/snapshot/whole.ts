/** What a snapshot keeps of the whole timeline, unpacked once. */

import { type Bins, type EventColumns, parseBins, parseEvents } from "../binary";
import type { StreamsAnswer } from "../timelineRange";
import type { TimelineMeta } from "../types";

export const PS_PER_MS = 1e9;
/** Categories from here on are causes of idle time. */
export const FIRST_CAUSE = 3;

/** What it needs of a snapshot. */
export interface Kept {
  names: () => string[];
  bytes: (name: string) => ArrayBuffer | null;
  json: <T>(name: string) => T | null;
}

/** The parameters of a request. */
export type Values = Record<string, string | number>;

export interface Waits {
  lane: number[];
  start_ps: number[];
  end_ps: number[];
}

/** Bins of a stretch. */
export interface Block {
  start: number;
  end: number;
  bins: Bins;
}

export interface Whole {
  meta: TimelineMeta;
  start: number;
  end: number;
  events: EventColumns | null;
  bins: Block[];
  waits: Block[];
  /** By lane, all that its streams ran; null where that is not kept. */
  streams: StreamsAnswer[] | null;
}

const wholes = new WeakMap<Kept, Whole>();

/** All intervals, unpacked once. */
export function whole(kept: Kept): Whole | null {
  const found = wholes.get(kept);
  if (found) return found;
  const meta = kept.json<TimelineMeta>("timeline/meta");
  if (!meta) return null;
  const bytes = kept.bytes("timeline/events");
  const streams = meta.lanes.map(({ id }) => kept.json<StreamsAnswer>(`timeline/streams|lane=${id}`));
  const made = {
    meta,
    start: meta.start_ps,
    end: Math.max(meta.end_ps, meta.start_ps + 1),
    events: bytes ? parseEvents(bytes) : null,
    bins: blocks(kept, "timeline/bins", meta),
    waits: blocks(kept, "timeline/waits", meta),
    streams: streams.every((each) => each !== null) ? (streams as StreamsAnswer[]) : null,
  };
  wholes.set(kept, made);
  return made;
}

/** The bins of the whole, and of the analysed window where they are finer. */
function blocks(kept: Kept, route: string, meta: TimelineMeta): Block[] {
  const prefix = `${route}|`;
  return kept.names().flatMap((name) => {
    if (name !== route && !name.startsWith(prefix)) return [];
    const bytes = kept.bytes(name);
    const [end, start] = [...name.slice(prefix.length).matchAll(/=(-?\d+)/g)].map((match) => Number(match[1]));
    const whole = { start: meta.start_ps, end: Math.max(meta.end_ps, meta.start_ps + 1) };
    return bytes ? [{ ...(start === undefined ? whole : { start, end }), bins: parseBins(bytes) }] : [];
  });
}

/** The finest bins that hold a stretch: the shortest, since all are equally wide. */
export function finest(all: readonly Block[], start: number, end: number): Block | undefined {
  const holding = all.filter((block) => block.start <= start && end <= block.end);
  return holding.sort((a, b) => a.end - a.start - (b.end - b.start))[0] ?? all[0];
}

/** The time that two stretches share, negative where they are apart. */
export const overlap = (start: number, end: number, low: number, high: number) =>
  Math.min(end, high) - Math.max(start, low);

/** A parameter as a number. */
export const number = (value: string | number | undefined, otherwise: number): number =>
  value === undefined || value === "" ? otherwise : Number(value);
