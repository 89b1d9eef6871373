import { ApiError } from "./errors";

/** How full each pixel is per lane and category: `cells[(lane * categories + category) * width + pixel]`, 0..255. */
export interface Bins {
  lanes: number;
  categories: number;
  width: number;
  cells: Uint8Array;
}

/** The intervals of a window as columns; times in `unitPs` from `basePs`, lanes' rows in any order. */
export interface EventColumns {
  count: number;
  basePs: number;
  unitPs: number;
  names: string[];
  truncated: boolean;
  start: Uint32Array;
  end: Uint32Array;
  lane: Uint16Array;
  name: Uint16Array;
  category: Uint8Array;
}

/** The index in the `name` column that stands for "has no name". */
export const NO_NAME = 65535;

const BIG_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 0;

function malformed(what: string): ApiError {
  return new ApiError("format", what, 0);
}

export function parseBins(buffer: ArrayBuffer): Bins {
  if (buffer.byteLength < 12) throw malformed("timeline/bins: header cut off");
  const view = new DataView(buffer);
  const lanes = view.getUint32(0, true);
  const categories = view.getUint32(4, true);
  const width = view.getUint32(8, true);
  const size = lanes * categories * width;
  if (buffer.byteLength !== 12 + size) throw malformed("timeline/bins: size does not match the header");
  return { lanes, categories, width, cells: new Uint8Array(buffer, 12, size) };
}

interface EventHeader {
  count: number;
  base_ps: number;
  unit_ps: number;
  names: string[];
  truncated: boolean;
}

const padded = (bytes: number): number => (bytes + 3) & ~3;

export function parseEvents(buffer: ArrayBuffer): EventColumns {
  if (buffer.byteLength < 4) throw malformed("timeline/events: header cut off");
  const headerLength = new DataView(buffer).getUint32(0, true);
  if (4 + headerLength > buffer.byteLength) throw malformed("timeline/events: header cut off");
  let header: EventHeader;
  try {
    header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, headerLength))) as EventHeader;
  } catch {
    throw malformed("timeline/events: header is not JSON");
  }
  const count = header.truncated ? 0 : header.count;
  if (!Number.isSafeInteger(count) || count < 0) throw malformed("timeline/events: bad count");
  const sizes = [4 * count, 4 * count, 2 * count, 2 * count, count];
  const needed = 4 + headerLength + sizes.reduce((sum, size) => sum + padded(size), 0);
  if (needed > buffer.byteLength) throw malformed("timeline/events: columns cut off");

  // A typed array needs its natural alignment; where the columns do not have it (or on a
  // big-endian machine), they are copied.
  let bytes = buffer;
  let offset = 4 + headerLength;
  if (offset % 4 !== 0) {
    bytes = buffer.slice(offset);
    offset = 0;
  }
  const next = (index: number): number => {
    const at = offset;
    offset += padded(sizes[index]);
    return at;
  };
  const start = u32(bytes, next(0), count);
  const end = u32(bytes, next(1), count);
  const lane = u16(bytes, next(2), count);
  const name = u16(bytes, next(3), count);
  const category = new Uint8Array(bytes, next(4), count);
  return {
    count,
    basePs: header.base_ps,
    unitPs: header.unit_ps,
    names: header.names,
    truncated: header.truncated,
    start,
    end,
    lane,
    name,
    category,
  };
}

function u32(buffer: ArrayBuffer, offset: number, count: number): Uint32Array {
  if (!BIG_ENDIAN) return new Uint32Array(buffer, offset, count);
  const view = new DataView(buffer, offset);
  return Uint32Array.from({ length: count }, (_, i) => view.getUint32(4 * i, true));
}

function u16(buffer: ArrayBuffer, offset: number, count: number): Uint16Array {
  if (!BIG_ENDIAN) return new Uint16Array(buffer, offset, count);
  const view = new DataView(buffer, offset);
  return Uint16Array.from({ length: count }, (_, i) => view.getUint16(2 * i, true));
}
