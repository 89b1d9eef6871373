import { describe, expect, it } from "vitest";
import { parseBins, parseEvents } from "../src/api/binary";

function events(header: object, columns: number[][], headerPadding = 0): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const headerLength = text.length + headerPadding;
  const widths = [4, 4, 2, 2, 1];
  const sizes = columns.map((column, i) => (column.length * widths[i] + 3) & ~3);
  const buffer = new ArrayBuffer(4 + headerLength + sizes.reduce((a, b) => a + b, 0));
  const view = new DataView(buffer);
  view.setUint32(0, headerLength, true);
  new Uint8Array(buffer, 4, headerLength).fill(32);
  new Uint8Array(buffer).set(text, 4);
  let at = 4 + headerLength;
  columns.forEach((column, i) => {
    column.forEach((value, k) => {
      if (widths[i] === 4) view.setUint32(at + 4 * k, value, true);
      else if (widths[i] === 2) view.setUint16(at + 2 * k, value, true);
      else view.setUint8(at + k, value);
    });
    at += sizes[i];
  });
  return buffer;
}

const HEADER = { count: 3, base_ps: 1000, unit_ps: 10, names: ["a", "ü"], truncated: false };
const COLUMNS = [
  [0, 5, 4294967295],
  [4, 9, 4294967295],
  [0, 1, 65535],
  [0, 1, 65535],
  [0, 12, 255],
];

describe("parseEvents", () => {
  it.each([0, 1, 2, 3, 5, 8])("reads the columns at any alignment (%i bytes of padding)", (padding) => {
    const parsed = parseEvents(events(HEADER, COLUMNS, padding));
    expect(parsed.count).toBe(3);
    expect(parsed.names).toEqual(["a", "ü"]);
    expect([...parsed.start]).toEqual(COLUMNS[0]);
    expect([...parsed.end]).toEqual(COLUMNS[1]);
    expect([...parsed.lane]).toEqual(COLUMNS[2]);
    expect([...parsed.name]).toEqual(COLUMNS[3]);
    expect([...parsed.category]).toEqual(COLUMNS[4]);
  });

  it("knows a truncated answer, which has no columns", () => {
    const parsed = parseEvents(events({ ...HEADER, count: 999, truncated: true }, []));
    expect(parsed.truncated).toBe(true);
    expect(parsed.count).toBe(0);
  });

  it("refuses what is cut off or is no answer of ours", () => {
    const whole = events(HEADER, COLUMNS);
    expect(() => parseEvents(whole.slice(0, whole.byteLength - 4))).toThrow(/cut off/);
    expect(() => parseEvents(whole.slice(0, 10))).toThrow(/cut off/);
    expect(() => parseEvents(new ArrayBuffer(0))).toThrow(/cut off/);
    const text = new TextEncoder().encode("\x04\0\0\0nope");
    expect(() => parseEvents(text.buffer as ArrayBuffer)).toThrow(/JSON/);
    expect(() => parseEvents(events({ ...HEADER, count: -1 }, COLUMNS))).toThrow(/count/);
  });
});

describe("parseBins", () => {
  it("reads lane-major cells", () => {
    const buffer = new ArrayBuffer(12 + 2 * 3 * 4);
    const view = new DataView(buffer);
    [2, 3, 4].forEach((value, i) => {
      view.setUint32(4 * i, value, true);
    });
    view.setUint8(12 + (1 * 3 + 2) * 4 + 3, 77);
    const bins = parseBins(buffer);
    expect([bins.lanes, bins.categories, bins.width]).toEqual([2, 3, 4]);
    expect(bins.cells[(1 * 3 + 2) * 4 + 3]).toBe(77);
  });

  it("refuses a size that does not fit the header", () => {
    expect(() => parseBins(new ArrayBuffer(4))).toThrow();
    const buffer = new ArrayBuffer(20);
    new DataView(buffer).setUint32(0, 1, true);
    expect(() => parseBins(buffer)).toThrow(/size/);
  });
});
