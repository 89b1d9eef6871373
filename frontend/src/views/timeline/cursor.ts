import { type Row, rowAt } from "../../charts/rows";
import { length, type Range } from "../../charts/viewport";
import type { FoundInterval } from "../../state/timeline";

/** The place on the timeline that the pointer or the keyboard is at. */
export interface Cursor {
  /** The row that it is on. */
  row: number;
  /** The place of the lane; of a folded host, its first. */
  lane: number;
  time: number;
  x: number;
  y: number;
  /** Set from the keyboard: announced, and kept when the pointer leaves. */
  keyboard: boolean;
}

/** What of the timeline is on the screen. */
export interface Shown {
  rows: readonly Row[];
  range: Range;
  width: number;
  height: number;
  scrollTop: number;
}

/** The cursor under a point of the lanes' picture; null beside all lanes. */
export function cursorAt({ rows, range, width, height, scrollTop }: Shown, x: number, y: number): Cursor | null {
  if (x < 0 || x >= width || y < 0 || y >= height) return null;
  const row = rowAt(rows, y + scrollTop);
  if (row < 0 || !rows[row].lanes.length) return null;
  return { row, lane: rows[row].lanes[0], x, y, time: range.start + (x / width) * length(range), keyboard: false };
}

/**
 * Where a key moves the cursor: by rows, or to the edge of what is under it. `y` is that of the row in the whole list,
 * which may have to be scrolled to.
 */
export function movedCursor(
  { rows, range, width }: Shown,
  cursor: Cursor | null,
  by: number,
  edge: -1 | 0 | 1,
  intervalAt: (lane: number, time: number) => FoundInterval | null | undefined,
): Cursor | null {
  const usable = rows.flatMap(({ kind, lanes }, i) => (kind !== "stream" && lanes.length ? [i] : []));
  const now = Math.max(0, usable.indexOf(cursor?.row ?? -1));
  const row = usable[Math.min(Math.max(now + by, 0), usable.length - 1)];
  if (row === undefined) return null;
  const lane = rows[row].lanes[0];
  let time =
    cursor && cursor.time >= range.start && cursor.time < range.end ? cursor.time : (range.start + range.end) / 2;
  if (edge !== 0) {
    const at = intervalAt(lane, time);
    const pixel = length(range) / width;
    if (at) time = edge > 0 ? at.end + 1 : at.start - 1;
    else time += edge * pixel;
    time = Math.min(Math.max(time, range.start), range.end - 1);
  }
  const { top, height } = rows[row];
  return { row, lane, time, x: ((time - range.start) / length(range)) * width, y: top + height / 2, keyboard: true };
}
