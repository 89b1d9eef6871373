/** Gaps of the timeline, and what a lane does at an instant. */

import { NO_NAME } from "../binary";
import type { Gap, GapsAnswer } from "../gaps";
import type { FoundGap } from "../timelineRange";
import type { MomentDetails } from "../types";
import { FIRST_CAUSE, type Kept, number, PS_PER_MS, type Values, type Whole } from "./whole";

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

export function nextGap(all: Whole, params: Values): { gap: FoundGap | null } {
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
  if (!found) return { gap: null };
  const { causes: _, ...gap } = found;
  return { gap };
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

/** The event that an interval is a part of: a lane shows an event only where nothing before it shows already. */
function eventBehind({ streams }: Whole, lane: number, name: string, shown: { start: number; end: number }) {
  const own = streams?.[lane];
  if (!own) return null;
  let found: { start: number; end: number; stream: string } | null = null;
  const { start_ps, end_ps, stream } = own.events;
  for (let i = 0; i < start_ps.length; i++) {
    if (start_ps[i] > shown.start || end_ps[i] < shown.end || own.names[own.events.name[i]] !== name) continue;
    if (found && found.start <= start_ps[i]) continue;
    found = { start: start_ps[i], end: end_ps[i], stream: own.streams[stream[i]].name };
  }
  return found;
}

/** What a lane does at an instant. Ops and what stands around a gap are known of the longest gaps only. */
export function moment(kept: Kept, all: Whole, params: Values): MomentDetails {
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
    const shown = {
      start: events.basePs + events.start[row] * events.unitPs,
      end: events.basePs + events.end[row] * events.unitPs,
    };
    const name = events.name[row] === NO_NAME ? null : (events.names[events.name[row]] ?? null);
    const event = eventBehind(all, lane, name ?? "", shown);
    return {
      ...nothing,
      kind: "event",
      category,
      start_ps: event?.start ?? shown.start,
      end_ps: event?.end ?? shown.end,
      name,
      stream: event?.stream ?? null,
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
export function filteredGaps(answer: GapsAnswer, params: Values): GapsAnswer {
  const cause = params.cause === undefined ? "" : String(params.cause);
  const lane = params.lane === undefined ? null : Number(params.lane);
  if (!cause && lane === null) return answer;
  const gaps = answer.gaps.filter(
    (gap) => (lane === null || gap.lane === lane) && (!cause || (gap.causes_ms[cause] ?? 0) > 0),
  );
  if (cause) {
    const weight = (gap: Gap) => gap.causes_ms[cause] ?? 0;
    gaps.sort((a, b) => weight(b) - weight(a) || a.lane - b.lane || a.start_ps - b.start_ps);
  }
  return { ...answer, gaps, matching: gaps.length, truncated: answer.truncated };
}
