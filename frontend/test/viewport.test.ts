import { describe, expect, it } from "vitest";
import { makeAxis, niceStep } from "../src/charts/axis";
import { clampRange, covers, length, pan, widen, zoom } from "../src/charts/viewport";
import { lang } from "../src/i18n";
import { chooseDetail } from "../src/state/timeline";

lang.value = "en";
const EXTENT = { start: 1000, end: 101_000 };

describe("zoom and pan", () => {
  it("keeps the time under the pointer where it is", () => {
    const range = { start: 20_000, end: 40_000 };
    for (const fraction of [0, 0.25, 0.5, 1]) {
      for (const factor of [0.1, 0.9, 1.5]) {
        const next = zoom(range, factor, fraction, EXTENT, 10);
        const before = range.start + fraction * length(range);
        expect(next.start + fraction * length(next)).toBeCloseTo(before, 6);
      }
    }
  });

  it("never leaves the extent and never gets shorter than allowed", () => {
    let range = { start: 1000, end: 101_000 };
    for (let i = 0; i < 200; i++) range = zoom(range, 0.7, 0.99, EXTENT, 10);
    expect(length(range)).toBeCloseTo(10, 6);
    for (let i = 0; i < 200; i++) range = zoom(range, 1.4, 0.01, EXTENT, 10);
    expect(range.start).toBeCloseTo(EXTENT.start, 6);
    expect(range.end).toBeCloseTo(EXTENT.end, 6);
    expect(pan({ start: 1000, end: 2000 }, -5, EXTENT)).toEqual({ start: 1000, end: 2000 });
    expect(pan({ start: 90_000, end: 100_000 }, 5, EXTENT)).toEqual({ start: 91_000, end: 101_000 });
    expect(clampRange({ start: -5e9, end: 5e9 }, EXTENT, 10)).toEqual(EXTENT);
  });

  it("widens inside the extent", () => {
    expect(widen({ start: 2000, end: 4000 }, 1, EXTENT)).toEqual({ start: 1000, end: 6000 });
    expect(covers(EXTENT, { start: 1000, end: 5000 })).toBe(true);
    expect(covers({ start: 1001, end: 9000 }, { start: 1000, end: 5000 })).toBe(false);
  });
});

describe("chooseDetail", () => {
  it("asks for intervals with a margin where they fit", () => {
    const view = { start: 40_000, end: 41_000 };
    expect(chooseDetail(view, EXTENT, 1_000_000, 200_000, Infinity)).toEqual({
      detail: "events",
      range: { start: 39_000, end: 42_000 },
    });
  });

  it("drops the margin before it drops the intervals", () => {
    const view = { start: 40_000, end: 50_000 };
    const { detail, range } = chooseDetail(view, EXTENT, 1_000_000, 200_000, Infinity);
    expect([detail, range]).toEqual(["events", view]);
  });

  it("takes bins where there are too many, expected or seen", () => {
    expect(chooseDetail(EXTENT, EXTENT, 1_000_000, 200_000, Infinity).detail).toBe("bins");
    expect(chooseDetail({ start: 40_000, end: 41_000 }, EXTENT, 10, 200_000, 1000).detail).toBe("bins");
  });

  it("takes all intervals of a small profile at once", () => {
    expect(chooseDetail(EXTENT, EXTENT, 5000, 200_000, Infinity)).toEqual({ detail: "events", range: EXTENT });
  });
});

describe("axis", () => {
  it("steps by 1, 2 or 5", () => {
    expect(niceStep(100, 10)).toBe(10);
    expect(niceStep(103, 10)).toBe(20);
    expect(niceStep(0.37, 8)).toBeCloseTo(0.05);
  });

  it("labels in one unit", () => {
    const axis = makeAxis(0, 100, 5);
    expect(axis.base).toBe("");
    expect(axis.ticks.map((tick) => tick.label)).toEqual(["0 ms", "20 ms", "40 ms", "60 ms", "80 ms", "100 ms"]);
    expect(makeAxis(100, 101.2, 10).ticks[1].label).toBe("100.2 ms");
  });

  it("counts from a base where labels would get long", () => {
    const axis = makeAxis(12_345.678, 12_345.6785, 5);
    expect(axis.base).toMatch(/^12\.345678/);
    expect(axis.ticks[1].label).toBe("+100 ns");
    expect(axis.ticks.every((tick) => tick.at >= 12_345.678 - 1e-9 && tick.at <= 12_345.6785 + 1e-9)).toBe(true);
  });

  it("ticks lie inside the range, about as many as wanted", () => {
    for (const [start, end] of [
      [0, 1e-6],
      [3, 3.0004],
      [500, 86_400_000],
      [0.001, 0.9],
    ]) {
      const { ticks } = makeAxis(start, end, 8);
      expect(ticks.length).toBeGreaterThanOrEqual(3);
      expect(ticks.length).toBeLessThanOrEqual(10);
      expect(new Set(ticks.map((tick) => tick.label)).size).toBe(ticks.length);
    }
  });
});
