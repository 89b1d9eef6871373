import type { Bins, EventColumns } from "../api/binary";
import type { Range } from "./viewport";

/**
 * From intervals or bins to pixel columns: how much of each pixel's time a category fills.
 * One frame costs pixels x categories x log(intervals), whatever the number of intervals.
 */

/** The intervals of one lane and category, sorted; `before[i]`: their time before interval i. */
interface Track {
  start: Float64Array;
  end: Float64Array;
  before: Float64Array;
}

/** One lane's intervals, sorted by start, and the same by category. Times in ps. */
export interface LaneEvents {
  start: Float64Array;
  end: Float64Array;
  category: Uint8Array;
  name: Uint16Array;
  tracks: (Track | null)[];
}

export interface EventBlock extends Range {
  lanes: Map<number, LaneEvents>;
  names: string[];
  count: number;
}

/** Sorts the server's columns into lanes. */
export function indexEvents(columns: EventColumns, range: Range, categories: number): EventBlock {
  const counts = new Map<number, number>();
  for (let i = 0; i < columns.count; i++) counts.set(columns.lane[i], (counts.get(columns.lane[i]) ?? 0) + 1);
  const rows = new Map<number, Uint32Array>();
  const filled = new Map<number, number>();
  for (const [lane, count] of counts) rows.set(lane, new Uint32Array(count));
  for (let i = 0; i < columns.count; i++) {
    const lane = columns.lane[i];
    const at = filled.get(lane) ?? 0;
    rows.get(lane)![at] = i;
    filled.set(lane, at + 1);
  }
  const lanes = new Map<number, LaneEvents>();
  for (const [lane, index] of rows) lanes.set(lane, indexLane(columns, index, categories));
  return { start: range.start, end: range.end, lanes, names: columns.names, count: columns.count };
}

function indexLane(columns: EventColumns, index: Uint32Array, categories: number): LaneEvents {
  let sorted = true;
  for (let i = 1; i < index.length && sorted; i++) sorted = columns.start[index[i - 1]] <= columns.start[index[i]];
  if (!sorted) index.sort((a, b) => columns.start[a] - columns.start[b]);
  const n = index.length;
  const start = new Float64Array(n);
  const end = new Float64Array(n);
  const category = new Uint8Array(n);
  const name = new Uint16Array(n);
  const perCategory = new Uint32Array(categories);
  for (let i = 0; i < n; i++) {
    const row = index[i];
    start[i] = columns.basePs + columns.start[row] * columns.unitPs;
    end[i] = columns.basePs + columns.end[row] * columns.unitPs;
    category[i] = columns.category[row];
    name[i] = columns.name[row];
    if (category[i] < categories) perCategory[category[i]] += 1;
  }
  const tracks = Array.from(perCategory, (count): Track | null =>
    count
      ? { start: new Float64Array(count), end: new Float64Array(count), before: new Float64Array(count + 1) }
      : null,
  );
  const at = new Uint32Array(categories);
  for (let i = 0; i < n; i++) {
    const track = tracks[category[i]];
    if (!track) continue;
    const k = at[category[i]]++;
    track.start[k] = start[i];
    track.end[k] = end[i];
    track.before[k + 1] = track.before[k] + (end[i] - start[i]);
  }
  return { start, end, category, name, tracks };
}

/** The first index in [from, to) whose value is above `wanted`; `to` when none is. */
export function upperBound(values: ArrayLike<number>, wanted: number, from = 0, to = values.length): number {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] > wanted) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Like `upperBound`, for walks from left to right: looks near `from` first. */
function gallop(values: Float64Array, wanted: number, from: number): number {
  const n = values.length;
  let step = 1;
  let low = from;
  while (low + step <= n && values[low + step - 1] <= wanted) {
    low += step;
    step *= 2;
  }
  return upperBound(values, wanted, low, Math.min(n, low + step));
}

/** Time of a track before `time`, given k = intervals that start at or before it. */
function timeBefore(track: Track, time: number, k: number): number {
  if (k === 0) return 0;
  return track.before[k - 1] + Math.min(Math.max(time - track.start[k - 1], 0), track.end[k - 1] - track.start[k - 1]);
}

/**
 * Fills `out[category * width + pixel]` (0..1) from intervals. Returns the categories that may
 * occur in the view; only their rows are written.
 */
export function coverFromEvents(lane: LaneEvents, view: Range, width: number, out: Float32Array): number[] {
  const pixel = (view.end - view.start) / width;
  const active: number[] = [];
  for (let c = 0; c < lane.tracks.length; c++) {
    const track = lane.tracks[c];
    if (!track || track.start[0] >= view.end || track.end[track.end.length - 1] <= view.start) continue;
    const row = c * width;
    let k = upperBound(track.start, view.start);
    // Nothing begins in the view and nothing reaches into it.
    if ((k === 0 || track.end[k - 1] <= view.start) && track.start[k] >= view.end) continue;
    active.push(c);
    let before = timeBefore(track, view.start, k);
    for (let x = 0; x < width; x++) {
      const time = view.start + (x + 1) * pixel;
      k = gallop(track.start, time, k);
      const until = timeBefore(track, time, k);
      out[row + x] = (until - before) / pixel;
      before = until;
    }
  }
  return active;
}

export interface BinBlock extends Range {
  bins: Bins;
  /** For each lane the categories that it has anywhere, so that the others cost nothing. */
  present: number[][];
}

export function makeBinBlock(range: Range, bins: Bins): BinBlock {
  const present = Array.from({ length: bins.lanes }, (_, lane) =>
    Array.from({ length: bins.categories }, (__, c) => c).filter((c) => {
      const from = (lane * bins.categories + c) * bins.width;
      return bins.cells.subarray(from, from + bins.width).some((cell) => cell > 0);
    }),
  );
  return { ...range, bins, present };
}

/** The same from the server's bins, which may be finer, coarser or shifted against the view. */
export function coverFromBins(block: BinBlock, lane: number, view: Range, width: number, out: Float32Array): number[] {
  const { bins } = block;
  const scale = bins.width / (block.end - block.start);
  const pixel = ((view.end - view.start) / width) * scale;
  const first = (view.start - block.start) * scale;
  const whole = 1 / (255 * pixel);
  for (const c of block.present[lane]) {
    const from = (lane * bins.categories + c) * bins.width;
    for (let x = 0; x < width; x++) {
      const left = first + x * pixel;
      const right = left + pixel;
      let sum = 0;
      const low = Math.max(0, Math.floor(left));
      const high = Math.min(bins.width, Math.ceil(right));
      for (let b = low; b < high; b++) {
        const cell = bins.cells[from + b];
        if (cell) sum += cell * (Math.min(b + 1, right) - Math.max(b, left));
      }
      out[c * width + x] = sum * whole;
    }
  }
  return block.present[lane];
}

/** Index of the interval that contains a time, -1 for none. */
export function findEvent(lane: LaneEvents, time: number): number {
  const i = upperBound(lane.start, time) - 1;
  return i >= 0 && lane.end[i] > time ? i : -1;
}

/**
 * Shares `height` rows of one pixel column among categories by their cover. What is present gets at
 * least one row, so that nothing vanishes; the rest stays empty. `rows[i]` gets the count of `active[i]`.
 */
export function stackColumn(
  cover: Float32Array,
  offset: number,
  stride: number,
  active: readonly number[],
  height: number,
  rows: Uint16Array,
): void {
  const n = active.length;
  let used = 0;
  let largest = -1;
  for (let i = 0; i < n; i++) {
    const share = cover[offset + active[i] * stride];
    const count = share > 0 ? Math.max(1, Math.round(share * height)) : 0;
    rows[i] = count;
    used += count;
    if (count > 0 && (largest < 0 || count > rows[largest])) largest = i;
  }
  // Rounding up can ask for more rows than there are: the largest gives them back.
  while (used > height && largest >= 0) {
    const excess = Math.min(used - height, rows[largest] - 1);
    if (excess <= 0) break;
    rows[largest] -= excess;
    used -= excess;
    largest = 0;
    for (let i = 1; i < n; i++) if (rows[i] > rows[largest]) largest = i;
  }
}
