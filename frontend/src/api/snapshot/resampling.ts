/** Intervals and bins of a stretch out of those of the whole, as the server would send them. */

import type { Bins, EventColumns } from "../binary";

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
export const tooMany = (count: number): ArrayBuffer =>
  headerBytes({ count, base_ps: 0, unit_ps: 1, names: [], truncated: true }).slice().buffer;

const ROUNDING = 1e-9;

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
    // A border that arithmetic has moved by its last digit must not shine into the next pixel.
    const first = Math.max(0, Math.floor(left + ROUNDING));
    const last = Math.min(bins.width - 1, Math.ceil(right - ROUNDING) - 1);
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
