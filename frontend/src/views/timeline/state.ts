import { signal } from "@preact/signals";
import { fetchFound, fetchNextGap } from "../../api/timelineRange";
import type { ProfileId, TimelineMeta } from "../../api/types";
import { length, type Range } from "../../charts/viewport";
import { listParam, textParam } from "../../state/params";
import { type Highlight, highlight, selection } from "../../state/store";
import { extent, PS_PER_MS, setView, view } from "../../state/timelineView";

/** What links keep of the timeline beside its range, and how it jumps. */

/** Hosts that are folded or unfolded against how they are at first. */
export const toggledHosts = listParam("fold");
/** Ids of lanes whose streams are shown. */
export const openStreams = listParam("streams");
export const findQuery = textParam("find");

/** Dragging chooses a stretch instead of moving. */
export const selecting = signal(false);

export function toggle(list: typeof toggledHosts, item: string): void {
  const { value } = list;
  list.value = value.includes(item) ? value.filter((each) => each !== item) : [...value, item];
}

export const selectionPs = (): Range | null => {
  const range = selection.value;
  return range ? { start: range.startMs * PS_PER_MS, end: range.endMs * PS_PER_MS } : null;
};

export function setSelection(range: Range | null): void {
  selection.value =
    range && range.end > range.start ? { startMs: range.start / PS_PER_MS, endMs: range.end / PS_PER_MS } : null;
}

/** The lanes that a mark is about. */
export const markedLanes = ({ lanes }: TimelineMeta, { host, gpus }: Highlight): Set<number> =>
  new Set(
    lanes.flatMap((lane, i) => ((!gpus.length || gpus.includes(lane.gpu)) && (!host || lane.host === host) ? [i] : [])),
  );

/** Brings a stretch into the middle; zooms only where it would not be seen or not fit. */
function bringIntoView(range: Range): void {
  const shown = view.peek();
  const all = extent.peek();
  if (!shown || !all) return;
  const size = length(range);
  const keep = size <= 0.5 * length(shown) && size >= 0.004 * length(shown);
  const wide = keep ? length(shown) : Math.max(3 * size, 1000);
  const middle = (range.start + range.end) / 2;
  setView({ start: middle - wide / 2, end: middle + wide / 2 });
}

function mark(meta: TimelineMeta, lane: number, range: Range): void {
  const { host, gpu } = meta.lanes[lane];
  highlight.value = { host, gpus: [gpu], startMs: range.start / PS_PER_MS, endMs: range.end / PS_PER_MS };
  bringIntoView(range);
}

/** The lane that the mark is on, where it is on one. */
function markedLane(meta: TimelineMeta): number | null {
  const now = highlight.peek();
  const lanes = now ? markedLanes(meta, now) : new Set<number>();
  return lanes.size === 1 ? [...lanes][0] : null;
}

/** Where to look on from: the mark if it shows, else the border of what is shown. */
function standpoint(back: boolean): number | null {
  const shown = view.peek();
  if (!shown) return null;
  const now = highlight.peek();
  if (now) {
    const start = now.startMs * PS_PER_MS;
    if (start >= shown.start && start < shown.end) return start;
  }
  return back ? shown.end : shown.start - 1;
}

export type Jump = "done" | "none" | "failed";

/** Shorter gaps than this share of what is shown are passed over: nobody would see them. */
const SEEN = 1 / 300;

/** Marks the next gap that can be seen, on the marked GPU if one is marked. */
export async function jumpToGap(profile: ProfileId, meta: TimelineMeta, back: boolean): Promise<Jump> {
  const from = standpoint(back);
  const shown = view.peek();
  if (from === null || !shown) return "none";
  try {
    const lane = markedLane(meta);
    const id = lane === null ? null : meta.lanes[lane].id;
    const { gap } = await fetchNextGap(profile, from, back, length(shown) * SEEN, id);
    if (!gap) return "none";
    mark(
      meta,
      meta.lanes.findIndex((each) => each.id === gap.lane),
      { start: gap.start_ps, end: gap.end_ps },
    );
    return "done";
  } catch {
    return "failed";
  }
}

/** Marks the next kernel that the search finds. */
export async function jumpToHit(profile: ProfileId, meta: TimelineMeta, back: boolean): Promise<Jump> {
  const from = standpoint(back);
  const all = extent.peek();
  if (from === null || !all) return "none";
  try {
    const [start, end] = back ? [all.start, Math.max(from, all.start + 1)] : [Math.min(from, all.end - 1), all.end];
    // One may be the marked one itself, and several may begin with it on other GPUs.
    const { hits } = await fetchFound(profile, findQuery.peek(), start, end, meta.lanes.length + 2, back);
    const beyond = back
      ? hits.filter((hit) => hit.start_ps < from).reverse()
      : hits.filter((hit) => hit.start_ps > from);
    const hit = beyond[0];
    if (!hit) return "none";
    mark(
      meta,
      meta.lanes.findIndex((each) => each.id === hit.lane),
      { start: hit.start_ps, end: hit.end_ps },
    );
    return "done";
  } catch {
    return "failed";
  }
}
