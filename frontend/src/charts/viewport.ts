/** Zoom and pan of a time range inside an extent. Pure; any unit of time. */

export interface Range {
  start: number;
  end: number;
}

export const length = (range: Range): number => range.end - range.start;

/** The range moved into the extent, no longer than it and no shorter than `shortest`. */
export function clampRange(range: Range, extent: Range, shortest: number): Range {
  const full = length(extent);
  const size = Math.min(Math.max(length(range), Math.min(shortest, full)), full);
  const middle = (range.start + range.end) / 2;
  const start = Math.min(Math.max(middle - size / 2, extent.start), extent.end - size);
  return { start, end: start + size };
}

/** Zooms by `factor` (< 1: closer) so that the time at `fraction` of the width stays where it is. */
export function zoom(range: Range, factor: number, fraction: number, extent: Range, shortest: number): Range {
  const full = length(extent);
  const size = Math.min(Math.max(length(range) * factor, Math.min(shortest, full)), full);
  const fixed = range.start + length(range) * fraction;
  const start = fixed - size * fraction;
  return clampRange({ start, end: start + size }, extent, shortest);
}

/** Moves by a share of the visible length. */
export function pan(range: Range, share: number, extent: Range): Range {
  const size = length(range);
  const start = Math.min(Math.max(range.start + share * size, extent.start), Math.max(extent.start, extent.end - size));
  return { start, end: start + size };
}

/** The range with `share` of its length more on both sides, inside the extent. */
export function widen(range: Range, share: number, extent: Range): Range {
  const more = length(range) * share;
  return { start: Math.max(extent.start, range.start - more), end: Math.min(extent.end, range.end + more) };
}

export const covers = (outer: Range, inner: Range): boolean => outer.start <= inner.start && outer.end >= inner.end;
