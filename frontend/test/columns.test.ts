import { describe, expect, it } from "vitest";
import type { EventColumns } from "../src/api/binary";
import {
  coverFromBins,
  coverFromEvents,
  findEvent,
  indexEvents,
  makeBinBlock,
  stackColumn,
  upperBound,
} from "../src/charts/columns";

/** A repeatable random generator. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const CATEGORIES = 4;

/** Disjoint intervals in two lanes, in shuffled order. */
function made(seed: number, perLane: number): EventColumns {
  const rng = random(seed);
  const rows: [number, number, number, number][] = [];
  for (const lane of [0, 7]) {
    let at = 0;
    for (let i = 0; i < perLane; i++) {
      at += Math.floor(rng() * 5);
      const end = at + 1 + Math.floor(rng() * 20);
      rows.push([at, end, lane, Math.floor(rng() * CATEGORIES)]);
      at = end;
    }
  }
  rows.sort(() => rng() - 0.5);
  return {
    count: rows.length,
    basePs: 1_000_000,
    unitPs: 1000,
    names: ["k"],
    truncated: false,
    start: Uint32Array.from(rows, (row) => row[0]),
    end: Uint32Array.from(rows, (row) => row[1]),
    lane: Uint16Array.from(rows, (row) => row[2]),
    name: new Uint16Array(rows.length),
    category: Uint8Array.from(rows, (row) => row[3]),
  };
}

function bruteForce(columns: EventColumns, lane: number, start: number, end: number, width: number): number[] {
  const out = new Array<number>(CATEGORIES * width).fill(0);
  const pixel = (end - start) / width;
  for (let i = 0; i < columns.count; i++) {
    if (columns.lane[i] !== lane) continue;
    const from = columns.basePs + columns.start[i] * columns.unitPs;
    const to = columns.basePs + columns.end[i] * columns.unitPs;
    for (let x = 0; x < width; x++) {
      const both = Math.min(to, start + (x + 1) * pixel) - Math.max(from, start + x * pixel);
      if (both > 0) out[columns.category[i] * width + x] += both / pixel;
    }
  }
  return out;
}

describe("coverFromEvents", () => {
  it("equals a sum over all intervals, at every zoom", () => {
    const rng = random(99);
    for (let round = 0; round < 60; round++) {
      const columns = made(round + 1, 1 + Math.floor(rng() * 120));
      const block = indexEvents(columns, { start: 0, end: 1e9 }, CATEGORIES);
      const start = 1_000_000 + Math.floor((rng() - 0.2) * 1_500_000);
      const end = start + 1 + Math.floor(rng() ** 4 * 2_000_000);
      const width = 1 + Math.floor(rng() * 60);
      for (const lane of [0, 7]) {
        const out = new Float32Array(CATEGORIES * width);
        const active = coverFromEvents(block.lanes.get(lane)!, { start, end }, width, out);
        const wanted = bruteForce(columns, lane, start, end, width);
        for (let i = 0; i < out.length; i++) expect(out[i]).toBeCloseTo(wanted[i], 4);
        const present = [0, 1, 2, 3].filter((c) => wanted.slice(c * width, (c + 1) * width).some((share) => share > 0));
        expect(active).toEqual(expect.arrayContaining(present));
      }
    }
  });

  it("finds the interval under a time, and none in a gap", () => {
    const columns = made(5, 50);
    const lane = indexEvents(columns, { start: 0, end: 1e9 }, CATEGORIES).lanes.get(7)!;
    for (let i = 0; i < lane.start.length; i++) {
      expect(findEvent(lane, lane.start[i])).toBe(i);
      expect(findEvent(lane, (lane.start[i] + lane.end[i]) / 2)).toBe(i);
      const next = lane.start[i + 1] ?? Number.POSITIVE_INFINITY;
      if (next > lane.end[i]) expect(findEvent(lane, lane.end[i])).toBe(-1);
    }
    expect(findEvent(lane, -1)).toBe(-1);
  });
});

describe("coverFromBins", () => {
  const width = 8;
  const cells = Uint8Array.from({ length: CATEGORIES * width }, (_, i) => (i * 37) % 256);
  const block = makeBinBlock({ start: 0, end: 800 }, { lanes: 1, categories: CATEGORIES, width, cells });

  it("gives the cells back at their own resolution", () => {
    const out = new Float32Array(CATEGORIES * width);
    coverFromBins(block, 0, { start: 0, end: 800 }, width, out);
    out.forEach((share, i) => {
      expect(share).toBeCloseTo(cells[i] / 255, 5);
    });
  });

  it("keeps the sum when coarser, and shows nothing outside", () => {
    const out = new Float32Array(CATEGORIES * 4);
    coverFromBins(block, 0, { start: 0, end: 800 }, 4, out);
    for (let x = 0; x < 4; x++) expect(out[x]).toBeCloseTo((cells[2 * x] + cells[2 * x + 1]) / 510, 5);
    coverFromBins(block, 0, { start: 900, end: 1000 }, 4, out);
    expect(Math.max(...out)).toBe(0);
  });
});

describe("stackColumn", () => {
  it("gives each present category a row and never more rows than there are", () => {
    const rng = random(3);
    for (let round = 0; round < 500; round++) {
      const cover = Float32Array.from({ length: 13 }, () => (rng() < 0.5 ? 0 : rng() ** 6));
      const height = 13 + Math.floor(rng() * 40);
      const rows = new Uint16Array(13);
      stackColumn(cover, 0, 1, [...cover.keys()], height, rows);
      expect(rows.reduce((a, b) => a + b, 0)).toBeLessThanOrEqual(height);
      cover.forEach((share, c) => {
        expect(rows[c] > 0).toBe(share > 0);
      });
    }
  });

  it("fills a full column", () => {
    const rows = new Uint16Array(2);
    stackColumn(Float32Array.of(0.7, 0.3), 0, 1, [0, 1], 30, rows);
    expect([...rows]).toEqual([21, 9]);
  });
});

it("upperBound finds the first above", () => {
  const values = [1, 2, 2, 5];
  expect([0, 1, 2, 3, 5, 9].map((wanted) => upperBound(values, wanted))).toEqual([0, 1, 3, 3, 4, 4]);
});
