/** What the server works out for a range of time, from what a snapshot keeps of the whole recording. */

import { type Bins, type EventColumns, NO_NAME, parseBins, parseEvents } from "./binary";
import type { GapsAnswer } from "./gaps";
import type { FindAnswer, FoundGap, Hit, RangeAnswer, StreamsAnswer } from "./timelineRange";
import type { LaneTelemetry } from "./timelineTelemetry";
import type { MomentDetails, TimelineMeta } from "./types";

const PS_PER_MS = 1e9;
const FIRST_CAUSE = 3;
const TOP_KERNELS = 12;
const DEFAULT_EVENTS = 200_000;

/** What it needs of a snapshot. */
export interface Kept {
  names: () => string[];
  bytes: (name: string) => ArrayBuffer | null;
  json: <T>(name: string) => T | null;
}

type Values = Record<string, string | number>;

interface Waits {
  lane: number[];
  start_ps: number[];
  end_ps: number[];
}

/** Bins of a stretch. */
interface Block {
  start: number;
  end: number;
  bins: Bins;
}

interface Whole {
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
function whole(kept: Kept): Whole | null {
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
function finest(all: readonly Block[], start: number, end: number): Block | undefined {
  const holding = all.filter((block) => block.start <= start && end <= block.end);
  return holding.sort((a, b) => a.end - a.start - (b.end - b.start))[0] ?? all[0];
}

/** The intervals that share time with a stretch, as columns of their own. */
export function cutEvents(events: EventColumns, start: number, end: number, limit: number): ArrayBuffer {
  const [low, high] = [(start - events.basePs) / events.unitPs, (end - events.basePs) / events.unitPs];
  const rows: number[] = [];
  let count = 0;
  for (let i = 0; i < events.count; i++) {
    if (events.start[i] >= high || events.end[i] <= low) continue;
    count += 1;
    if (count <= limit) rows.push(i);
  }
  if (count > limit) return tooMany(count);
  const { basePs, unitPs, names } = events;
  const head = headerBytes({ count, base_ps: basePs, unit_ps: unitPs, names, truncated: false });
  const columns = [events.start, events.end, events.lane, events.name, events.category].map((column) => {
    const size = column.BYTES_PER_ELEMENT;
    const view = new DataView(new ArrayBuffer((size * count + 3) & ~3));
    for (const [at, row] of rows.entries()) {
      if (size === 4) view.setUint32(4 * at, column[row], true);
      else if (size === 2) view.setUint16(2 * at, column[row], true);
      else view.setUint8(at, column[row]);
    }
    return new Uint8Array(view.buffer);
  });
  const out = new Uint8Array(head.length + columns.reduce((sum, { length }) => sum + length, 0));
  out.set(head);
  let at = head.length;
  for (const column of columns) {
    out.set(column, at);
    at += column.length;
  }
  return out.buffer;
}

const encoder = new TextEncoder();

function headerBytes(header: object): Uint8Array {
  const text = encoder.encode(JSON.stringify(header));
  const padded = (text.length + 7) & ~7;
  const bytes = new Uint8Array(4 + padded).fill(32);
  new DataView(bytes.buffer).setUint32(0, padded, true);
  bytes.set(text, 4);
  return bytes;
}

/** As the server says that there are too many intervals. */
const tooMany = (count: number): ArrayBuffer =>
  headerBytes({ count, base_ps: 0, unit_ps: 1, names: [], truncated: true }).slice().buffer;

/** Bins of [start, end) out of those of the whole: shares of time, rounded up as the server does. */
export function resample(bins: Bins, from: { start: number; end: number }, start: number, end: number, width: number) {
  const rows = bins.lanes * bins.categories;
  const bytes = new Uint8Array(12 + rows * width);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, bins.lanes, true);
  view.setUint32(4, bins.categories, true);
  view.setUint32(8, width, true);
  const perBin = bins.width / (from.end - from.start);
  for (let x = 0; x < width; x++) {
    const left = (start + (x * (end - start)) / width - from.start) * perBin;
    const right = (start + ((x + 1) * (end - start)) / width - from.start) * perBin;
    const first = Math.max(0, Math.floor(left));
    const last = Math.min(bins.width - 1, Math.ceil(right) - 1);
    if (last < first) continue;
    for (let row = 0; row < rows; row++) {
      let sum = 0;
      for (let b = first; b <= last; b++) {
        const cell = bins.cells[row * bins.width + b];
        if (cell) sum += cell * (Math.min(right, b + 1) - Math.max(left, b));
      }
      if (sum > 0) bytes[12 + row * width + x] = Math.min(255, Math.max(1, Math.round(sum / (right - left))));
    }
  }
  return bytes.buffer;
}

const overlap = (start: number, end: number, low: number, high: number) => Math.min(end, high) - Math.max(start, low);

/** What fills a range lane by lane: exact from intervals, else from the bins. */
function accounting(kept: Kept, all: Whole, start: number, end: number): RangeAnswer {
  const { meta, events, streams } = all;
  const lanes = meta.lanes.map(({ id }) => ({
    lane: id,
    ms: {} as Record<string, number>,
    communication_wait_ms: 0,
  }));
  const add = (lane: number, category: string, ps: number) => {
    const { ms } = lanes[lane];
    if (ps > 0) ms[category] = (ms[category] ?? 0) + ps / PS_PER_MS;
  };
  if (events) {
    for (let i = 0; i < events.count; i++) {
      const low = events.basePs + events.start[i] * events.unitPs;
      const high = events.basePs + events.end[i] * events.unitPs;
      add(events.lane[i], meta.categories[events.category[i]], overlap(start, end, low, high));
    }
    const waits = kept.json<Waits>("waits");
    for (const [i, lane] of (waits?.lane ?? []).entries()) {
      const ps = overlap(start, end, waits?.start_ps[i] ?? 0, waits?.end_ps[i] ?? 0);
      if (ps > 0) lanes[lane].communication_wait_ms += ps / PS_PER_MS;
    }
  } else {
    const sum = (from: readonly Block[], take: (lane: number, category: number, ps: number) => void) => {
      const block = finest(from, start, end);
      if (!block) return;
      const { bins } = block;
      const size = (block.end - block.start) / bins.width;
      for (let row = 0; row < bins.lanes * bins.categories; row++) {
        let ps = 0;
        for (let b = 0; b < bins.width; b++) {
          const cell = bins.cells[row * bins.width + b];
          const low = block.start + b * size;
          if (cell) ps += Math.max(0, overlap(start, end, low, low + size)) * (cell / 255);
        }
        take(Math.floor(row / bins.categories), row % bins.categories, ps);
      }
    };
    sum(all.bins, (lane, category, ps) => add(lane, meta.categories[category], ps));
    sum(all.waits, (lane, _, ps) => {
      lanes[lane].communication_wait_ms = ps / PS_PER_MS;
    });
  }
  const totals = new Map<string, { name: string; total_ms: number; calls: number }>();
  for (const { events: all, names } of streams ?? []) {
    for (let i = 0; i < all.name.length; i++) {
      const ps = overlap(start, end, all.start_ps[i], all.end_ps[i]);
      if (ps <= 0) continue;
      const name = names[all.name[i]];
      const entry = totals.get(name) ?? { name, total_ms: 0, calls: 0 };
      entry.total_ms += ps / PS_PER_MS;
      entry.calls += 1;
      totals.set(name, entry);
    }
  }
  const kernels = [...totals.values()].sort((a, b) => b.total_ms - a.total_ms).slice(0, TOP_KERNELS);
  return { start_ps: start, end_ps: end, lanes, kernels };
}

const number = (value: string | number | undefined, otherwise: number): number =>
  value === undefined || value === "" ? otherwise : Number(value);

function find({ meta, streams }: Whole, params: Values): FindAnswer | null {
  if (!streams) return null;
  const words = String(params.query ?? "")
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean);
  const [start, end, limit] = [number(params.start_ps, 0), number(params.end_ps, 0), number(params.limit, 500)];
  const hits: Hit[] = [];
  for (const [at, { events, names }] of streams.entries()) {
    const lane = meta.lanes[at].id;
    if (!words.length || (params.lane !== undefined && number(params.lane, -1) !== lane)) continue;
    const wanted = names.map((name) => words.every((word) => name.toLowerCase().includes(word)));
    for (let i = 0; i < events.name.length; i++) {
      if (!wanted[events.name[i]] || overlap(start, end, events.start_ps[i], events.end_ps[i]) <= 0) continue;
      hits.push({
        lane,
        start_ps: events.start_ps[i],
        end_ps: events.end_ps[i],
        name: names[events.name[i]],
        op: "",
      });
    }
  }
  hits.sort((a, b) => a.start_ps - b.start_ps || a.lane - b.lane);
  const last = number(params.last, 0) === 1;
  const shown = limit ? (last ? hits.slice(-limit) : hits.slice(0, limit)) : [];
  return { matching: hits.length, truncated: hits.length > shown.length, hits: shown };
}

interface IdleGap extends FoundGap {
  causes: Record<string, number>;
}

/** The gaps of the lanes: intervals of causes that follow one another without a pause. */
function gapsOf({ meta, events }: Whole): IdleGap[] {
  if (!events) return [];
  const order = Array.from({ length: events.count }, (_, i) => i).sort(
    (a, b) => events.lane[a] - events.lane[b] || events.start[a] - events.start[b],
  );
  const gaps: IdleGap[] = [];
  let open: (IdleGap & { until: number }) | null = null;
  const close = () => {
    if (!open) return;
    const { until: _, ...gap } = open;
    gap.cause = Object.entries(gap.causes).sort((a, b) => b[1] - a[1])[0][0];
    gaps.push(gap);
    open = null;
  };
  for (const i of order) {
    const [lane, category] = [events.lane[i], events.category[i]];
    if (open && (open.lane !== lane || open.until !== events.start[i] || category < FIRST_CAUSE)) close();
    if (category < FIRST_CAUSE) continue;
    const name = meta.categories[category];
    const end = events.basePs + events.end[i] * events.unitPs;
    const ps = (events.end[i] - events.start[i]) * events.unitPs;
    if (open) {
      open.end_ps = end;
      open.until = events.end[i];
      open.causes[name] = (open.causes[name] ?? 0) + ps;
    } else {
      const start_ps = events.basePs + events.start[i] * events.unitPs;
      open = { lane, start_ps, end_ps: end, cause: name, until: events.end[i], causes: { [name]: ps } };
    }
  }
  close();
  return gaps.sort((a, b) => a.start_ps - b.start_ps || a.lane - b.lane);
}

const gapLists = new WeakMap<Whole, IdleGap[]>();

function gapsIn(all: Whole): IdleGap[] {
  let found = gapLists.get(all);
  if (!found) {
    found = gapsOf(all);
    gapLists.set(all, found);
  }
  return found;
}

function nextGap(all: Whole, params: Values): { gap: FoundGap | null } {
  const [time, shortest] = [number(params.time_ps, 0), number(params.shortest_ps, 1)];
  const fits = ({ lane, start_ps, end_ps }: IdleGap) =>
    end_ps - start_ps >= shortest && (params.lane === undefined || number(params.lane, -1) === lane);
  const gaps = gapsIn(all).filter(fits);
  // Of gaps that begin together it is that of the first lane, in both directions.
  const last = gaps.findLast(({ start_ps }) => start_ps < time)?.start_ps;
  const found =
    number(params.back, 0) === 1
      ? gaps.find(({ start_ps }) => start_ps === last)
      : gaps.find(({ start_ps }) => start_ps > time);
  return { gap: found ?? null };
}

interface IntervalSteps {
  /** Of each interval that is work. */
  step: (number | null)[];
  lanes: { number: number[]; start_ps: number[]; end_ps: number[] }[];
}

function stepAt(steps: IntervalSteps | null, lane: number, time: number): number | null {
  const own = steps?.lanes[lane];
  const at = own ? own.start_ps.findIndex((start, i) => start <= time && time < own.end_ps[i]) : -1;
  return own && at >= 0 ? own.number[at] : null;
}

/** What a lane does at an instant. Ops and what stands around a gap are known of the longest gaps only. */
function moment(kept: Kept, all: Whole, params: Values): MomentDetails {
  const [lane, time] = [number(params.lane, -1), number(params.time_ps, 0)];
  const nothing: MomentDetails = {
    kind: "none",
    category: null,
    start_ps: null,
    end_ps: null,
    name: null,
    op: null,
    stream: null,
    step: null,
    gap: null,
  };
  const { events, meta } = all;
  if (!events) return nothing;
  const steps = kept.json<IntervalSteps>("interval_steps");
  const at = (time - events.basePs) / events.unitPs;
  let row = -1;
  for (let i = 0; i < events.count && row < 0; i++) {
    if (events.lane[i] === lane && events.start[i] <= at && at < Math.max(events.end[i], events.start[i] + 1)) row = i;
  }
  if (row < 0) return nothing;
  const category = meta.categories[events.category[row]];
  if (events.category[row] < FIRST_CAUSE) {
    return {
      ...nothing,
      kind: "event",
      category,
      start_ps: events.basePs + events.start[row] * events.unitPs,
      end_ps: events.basePs + events.end[row] * events.unitPs,
      name: events.name[row] === NO_NAME ? null : (events.names[events.name[row]] ?? null),
      step: steps?.step[row] ?? null,
    };
  }
  const listed = kept
    .json<GapsAnswer>("gaps")
    ?.gaps.find((gap) => gap.lane === lane && gap.start_ps <= time && time < gap.end_ps);
  const around = gapsIn(all).find((gap) => gap.lane === lane && gap.start_ps <= time && time < gap.end_ps);
  const gap = listed
    ? {
        causes_ms: listed.causes_ms,
        before: listed.before,
        after: listed.after,
        thread: listed.thread,
        evidence: listed.evidence,
      }
    : {
        causes_ms: Object.fromEntries(Object.entries(around?.causes ?? {}).map(([name, ps]) => [name, ps / PS_PER_MS])),
        before: null,
        after: null,
        thread: null,
        evidence: null,
      };
  return {
    ...nothing,
    kind: "gap",
    category,
    start_ps: listed?.start_ps ?? around?.start_ps ?? null,
    end_ps: listed?.end_ps ?? around?.end_ps ?? null,
    step: stepAt(steps, lane, time),
    gap,
  };
}

/** Of the longest gaps those of a cause or a lane. */
function filteredGaps(answer: GapsAnswer, params: Values): GapsAnswer {
  const cause = params.cause === undefined ? "" : String(params.cause);
  const lane = params.lane === undefined ? null : Number(params.lane);
  if (!cause && lane === null) return answer;
  const gaps = answer.gaps.filter(
    (gap) => (lane === null || gap.lane === lane) && (!cause || (gap.causes_ms[cause] ?? 0) > 0),
  );
  if (cause) gaps.sort((a, b) => (b.causes_ms[cause] ?? 0) - (a.causes_ms[cause] ?? 0));
  return { ...answer, gaps, matching: gaps.length, truncated: answer.truncated };
}

interface Series {
  start_unix_ms: number | null;
  end_unix_ms: number | null;
  series: object[];
}

/** The series of several metrics, all of each. */
function series(kept: Kept, params: Values): Series {
  const found = String(params.metric ?? "")
    .split(",")
    .flatMap((metric) => kept.json<Series>(`telemetry/series|metric=${metric}`) ?? []);
  const known = (values: (number | null)[]) => values.filter((value): value is number => value !== null);
  const [starts, ends] = [known(found.map((f) => f.start_unix_ms)), known(found.map((f) => f.end_unix_ms))];
  return {
    start_unix_ms:
      params.start_unix_ms === undefined ? (starts.length ? Math.min(...starts) : null) : Number(params.start_unix_ms),
    end_unix_ms:
      params.end_unix_ms === undefined ? (ends.length ? Math.max(...ends) : null) : Number(params.end_unix_ms),
    series: found.flatMap((each) => each.series),
  };
}

/** What is made anew for each request; undefined: the answer is kept as it is; null: only a server knows. */
export function computed(kept: Kept, route: string, params: Values): ArrayBuffer | object | null | undefined {
  switch (route) {
    case "gaps": {
      const answer = kept.json<GapsAnswer>("gaps");
      return answer && filteredGaps(answer, params);
    }
    case "telemetry/series":
      return series(kept, params);
    case "timeline/telemetry": {
      const answer = kept.json<LaneTelemetry>(`timeline/telemetry|lang=${params.lang ?? "en"}`);
      const wanted = String(params.metric ?? "").split(",");
      return answer && { ...answer, lanes: answer.lanes.filter(({ metric }) => wanted.includes(metric)) };
    }
  }
  if (!route.startsWith("timeline/") || route === "timeline/meta") return undefined;
  const all = whole(kept);
  if (!all) return null;
  const [start, end] = [number(params.start_ps, all.start), number(params.end_ps, all.end)];
  switch (route) {
    case "timeline/events":
      return all.events
        ? cutEvents(all.events, start, end, number(params.limit, DEFAULT_EVENTS))
        : tooMany(all.meta.lanes.reduce((sum, lane) => sum + lane.intervals, 0));
    case "timeline/bins":
    case "timeline/waits": {
      const block = finest(route === "timeline/bins" ? all.bins : all.waits, start, end);
      return block ? resample(block.bins, block, start, end, Math.max(1, number(params.width, 1))) : null;
    }
    case "timeline/range":
      return accounting(kept, all, start, end);
    case "timeline/find":
      return find(all, params);
    case "timeline/next_gap":
      return nextGap(all, params);
    case "timeline/at":
      return moment(kept, all, params);
    case "timeline/streams":
      return kept.json<StreamsAnswer>(`timeline/streams|lane=${params.lane}`);
  }
  return null;
}
