import { describe, expect, it } from "vitest";
import { parseBins, parseEvents } from "../src/api/binary";
import type { GapsAnswer } from "../src/api/gaps";
import { answerName, answerOf } from "../src/api/snapshot/answers";
import { resample } from "../src/api/snapshot/resampling";
import type { FindAnswer, RangeAnswer } from "../src/api/timelineRange";
import type { MomentDetails } from "../src/api/types";
import { packed } from "./packed";

const CATEGORIES = ["compute", "communication", "transfer", "input", "launch"];
const NS = 1000;

interface Interval {
  lane: number;
  start: number;
  end: number;
  category: number;
  name?: string;
}

/** The columns as the server writes them. */
function events(intervals: readonly Interval[], basePs: number): Uint8Array {
  const names = [...new Set(intervals.flatMap(({ name }) => name ?? []))];
  const header = { count: intervals.length, base_ps: basePs, unit_ps: NS, names, truncated: false };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const head = new Uint8Array(Math.ceil((4 + text.length) / 8) * 8 + 4);
  const length = head.length - 4;
  const n = intervals.length;
  const padded = (bytes: number) => (bytes + 3) & ~3;
  const out = new Uint8Array(4 + length + 8 * n + 2 * padded(2 * n) + padded(n));
  const view = new DataView(out.buffer);
  view.setUint32(0, length, true);
  out.fill(32, 4, 4 + length);
  out.set(text, 4);
  let at = 4 + length;
  for (const key of ["start", "end"] as const) {
    for (const [i, each] of intervals.entries()) view.setUint32(at + 4 * i, each[key], true);
    at += 4 * n;
  }
  for (const [i, each] of intervals.entries()) view.setUint16(at + 2 * i, each.lane, true);
  at += padded(2 * n);
  for (const [i, each] of intervals.entries())
    view.setUint16(at + 2 * i, each.name ? names.indexOf(each.name) : 65535, true);
  at += padded(2 * n);
  for (const [i, each] of intervals.entries()) out[at + i] = each.category;
  return out;
}

function bins(lanes: number, categories: number, width: number, cells: readonly number[]): Uint8Array {
  const out = new Uint8Array(12 + lanes * categories * width);
  const view = new DataView(out.buffer);
  for (const [i, value] of [lanes, categories, width].entries()) view.setUint32(4 * i, value, true);
  out.set(cells, 12);
  return out;
}

const BASE = 5_000_000;
// Lane 0: work, a gap of two causes, work. Lane 1: communication with a wait in front.
const INTERVALS: Interval[] = [
  { lane: 0, start: 0, end: 100, category: 0, name: "gemm" },
  { lane: 0, start: 100, end: 130, category: 3 },
  { lane: 0, start: 130, end: 150, category: 4 },
  { lane: 0, start: 150, end: 200, category: 0, name: "relu" },
  { lane: 1, start: 20, end: 120, category: 1, name: "AllReduce" },
  { lane: 1, start: 120, end: 180, category: 3 },
];
const lane = (id: number) => ({
  id,
  kind: "gpu",
  host: "a",
  gpu: id,
  label: "",
  name: "",
  hosts_file: "a",
  intervals: 3,
});
const META = {
  start_ps: BASE,
  end_ps: BASE + 200 * NS,
  window: null,
  profile_start_ms: 0,
  categories: CATEGORIES,
  lanes: [lane(0), lane(1)],
  steps: [{ number: 7, complete: true, start_ps: BASE, end_ps: BASE + 160 * NS }],
};
const stream = (rows: [number, number, number][], names: string[]) => ({
  streams: [{ name: "s", events: rows.length }],
  events: {
    stream: rows.map(() => 0),
    start_ps: rows.map(([start]) => BASE + start * NS),
    end_ps: rows.map(([, end]) => BASE + end * NS),
    category: rows.map(() => 0),
    name: rows.map(([, , name]) => name),
  },
  names,
  launches: { threads: [], names: [], thread: [], start_ps: [], end_ps: [], name: [] },
  count: rows.length,
  truncated: false,
});
const gap = (laneId: number, start: number, end: number, causes: Record<string, number>) => ({
  lane: laneId,
  start_ps: BASE + start * NS,
  end_ps: BASE + end * NS,
  cause: Object.keys(causes)[0],
  causes_ms: causes,
  before: "gemm",
});
const full = packed({
  "timeline/meta": META,
  "timeline/events": events(INTERVALS, BASE),
  interval_steps: {
    step: [7, null, null, 8, 7, null],
    lanes: [
      { number: [7, 8], start_ps: [BASE, BASE + 120 * NS], end_ps: [BASE + 120 * NS, BASE + 200 * NS] },
      { number: [], start_ps: [], end_ps: [] },
    ],
  },
  waits: { lane: [1], start_ps: [BASE + 20 * NS], end_ps: [BASE + 60 * NS] },
  "timeline/bins": bins(
    2,
    5,
    4,
    Array.from({ length: 40 }, (_, i) => (i % 4) * 60),
  ),
  "timeline/waits": bins(2, 1, 4, [0, 0, 0, 0, 255, 128, 0, 0]),
  "timeline/streams|lane=0": stream(
    [
      [0, 100, 0],
      [40, 90, 1],
      [150, 200, 1],
    ],
    ["gemm", "relu"],
  ),
  "timeline/streams|lane=1": stream([[20, 120, 0]], ["AllReduce"]),
  gaps: {
    total: 3,
    total_ms: 1,
    matching: 3,
    truncated: false,
    gaps: [gap(1, 120, 180, { input: 0.00006 }), gap(0, 100, 150, { input: 0.00003, launch: 0.00002 })],
    histogram: null,
  },
  "diagnosis|lang=es": { verdict: "ok" },
  "kernels|by=gpu": { rows: [] },
});
const ask = <T>(route: string, params: Record<string, string | number> = {}, from = full): T =>
  answerOf(from, route, { run: "r", session: "s", ...params }) as T;
const between = (start: number, end: number) => ({ start_ps: BASE + start * NS, end_ps: BASE + end * NS });
const text = (answer: ArrayBuffer) => JSON.parse(new TextDecoder().decode(answer));

describe("a snapshot", () => {
  it("finds answers by what tells them apart", () => {
    expect(answerName("doc", { page: "findings/x", lang: "es", run: "r", session: "s" })).toBe(
      "doc|lang=es|page=findings/x",
    );
    expect(answerName("kernels/tree", { device: "", run: "" })).toBe("kernels/tree");
    expect(text(ask("diagnosis", { lang: "es" }))).toEqual({ verdict: "ok" });
    expect(text(ask("kernels", { by: "gpu", lang: "es" }))).toEqual({ rows: [] });
    expect(ask("diagnosis", { lang: "en" })).toBeNull();
    expect(ask("constructor")).toBeNull();
    expect(ask("compare", { before_run: "x" })).toBeNull();
  });

  it("accounts for a range as its intervals have it", () => {
    const { lanes, kernels } = ask<RangeAnswer>("timeline/range", between(50, 140));
    const close = (found: Record<string, number>, wanted: Record<string, number>) => {
      expect(Object.keys(found).sort()).toEqual(Object.keys(wanted).sort());
      for (const [name, ns] of Object.entries(wanted)) expect(found[name]).toBeCloseTo(ns / 1e6, 12);
    };
    close(lanes[0].ms, { compute: 50, input: 30, launch: 10 });
    close(lanes[1].ms, { communication: 70, input: 20 });
    expect(lanes[1].communication_wait_ms).toBeCloseTo(10 / 1e6, 12);
    // Kernels that run beside others count too.
    expect(kernels.map(({ name, calls }) => [name, calls])).toEqual([
      ["AllReduce", 1],
      ["gemm", 1],
      ["relu", 1],
    ]);
    expect(kernels[2].total_ms).toBeCloseTo(40 / 1e6, 12);
  });

  it("searches, and goes from gap to gap", () => {
    const found = ask<FindAnswer>("timeline/find", { query: "RELU", ...between(0, 200), limit: 1, last: 1 });
    expect([found.matching, found.truncated, found.hits[0].start_ps]).toEqual([2, true, BASE + 150 * NS]);
    expect(ask<FindAnswer>("timeline/find", { query: " ", ...between(0, 200) }).matching).toBe(0);
    expect(ask<FindAnswer>("timeline/find", { query: "relu", lane: 1, ...between(0, 200) }).matching).toBe(0);
    const next = (time: number, more = {}) =>
      ask<{ gap: { lane: number; cause: string } | null }>("timeline/next_gap", {
        time_ps: BASE + time * NS,
        ...more,
      }).gap;
    expect(next(0)).toMatchObject({ lane: 0, cause: "input", start_ps: BASE + 100 * NS, end_ps: BASE + 150 * NS });
    expect(next(0, { shortest_ps: 55 * NS })).toMatchObject({ lane: 1 });
    expect(next(0, { lane: 1 })).toMatchObject({ lane: 1 });
    expect(next(120)).toBeNull();
    expect(next(120, { back: 1 })).toMatchObject({ lane: 0 });
  });

  it("tells what a lane does at an instant", () => {
    const at = (laneId: number, time: number) =>
      ask<MomentDetails>("timeline/at", { lane: laneId, time_ps: BASE + time * NS });
    expect(at(0, 10)).toMatchObject({ kind: "event", name: "gemm", step: 7, start_ps: BASE });
    expect(at(0, 140)).toMatchObject({ kind: "gap", category: "launch", gap: { before: "gemm" } });
    expect(at(0, 140)).toMatchObject({ start_ps: BASE + 100 * NS, end_ps: BASE + 150 * NS });
    expect(at(1, 5).kind).toBe("none");
    expect([at(0, 170).step, at(0, 140).step, at(1, 150).step]).toEqual([8, 8, null]);
  });

  it("filters the gaps that it keeps", () => {
    expect(ask<GapsAnswer>("gaps", { limit: 1000 }).gaps).toHaveLength(2);
    const launch = ask<GapsAnswer>("gaps", { limit: 1000, cause: "launch" });
    expect([launch.matching, launch.gaps[0].lane]).toEqual([1, 0]);
    expect(ask<GapsAnswer>("gaps", { lane: 1 }).gaps).toHaveLength(1);
  });

  it("gives all intervals, or says that they are too many", () => {
    const all = parseEvents(ask("timeline/events", { ...between(0, 200), limit: 6 }));
    expect([all.count, all.names, [...all.start], [...all.category]]).toEqual([
      6,
      ["gemm", "relu", "AllReduce"],
      INTERVALS.map(({ start }) => start),
      INTERVALS.map(({ category }) => category),
    ]);
    expect(parseEvents(ask("timeline/events", { ...between(0, 200), limit: 5 })).truncated).toBe(true);
    const cut = parseEvents(ask("timeline/events", { ...between(120, 130), limit: 5 }));
    expect([[...cut.lane], [...cut.end], cut.names[cut.name[0]]]).toEqual([[0, 1], [130, 180], undefined]);
    const bare = packed({ "timeline/meta": META, "timeline/bins": bins(2, 5, 4, new Array(40).fill(255)) });
    const many = parseEvents(ask("timeline/events", between(0, 10), bare));
    expect([many.truncated, many.count]).toEqual([true, 0]);
    const { lanes, kernels } = ask<RangeAnswer>("timeline/range", between(25, 75), bare);
    expect(lanes[1].ms.compute).toBeCloseTo(50 / 1e6, 9);
    expect(kernels).toEqual([]);
    expect(ask("timeline/find", { query: "x", ...between(0, 1) }, bare)).toBeNull();
    expect(ask<{ gap: null }>("timeline/next_gap", { time_ps: 0 }, bare).gap).toBeNull();
  });
});

describe("bins of the analysed window", () => {
  it("stand in where they hold the range", () => {
    const [low, high] = [BASE + 50 * NS, BASE + 150 * NS];
    const kept = packed({
      "timeline/meta": META,
      "timeline/bins": bins(1, 1, 2, [10, 20]),
      [`timeline/bins|end_ps=${high}|start_ps=${low}`]: bins(1, 1, 2, [100, 200]),
    });
    const cells = (start: number, end: number) => [
      ...parseBins(ask("timeline/bins", { ...between(start, end), width: 2 }, kept)).cells,
    ];
    expect(cells(50, 150)).toEqual([100, 200]);
    expect(cells(100, 150)).toEqual([200, 200]);
    expect(cells(0, 200)).toEqual([10, 20]);
    expect(cells(0, 100)).toEqual([10, 10]);
  });
});

describe("bins of another range", () => {
  const whole = parseBins(bins(1, 2, 8, [0, 255, 255, 0, 0, 0, 10, 0, 1, 1, 1, 1, 1, 1, 1, 1]).buffer as ArrayBuffer);
  const of = (start: number, end: number, width: number) => [
    ...parseBins(resample(whole, { start: 100, end: 180 }, start, end, width)).cells,
  ];

  it("are the same for the same range", () => {
    expect(of(100, 180, 8)).toEqual([...whole.cells]);
  });

  it("are means where there are fewer, repeated where there are more", () => {
    expect(of(100, 180, 4).slice(0, 4)).toEqual([128, 128, 0, 5]);
    expect(of(105, 125, 4).slice(0, 4)).toEqual([0, 255, 255, 255]);
    // What is there at all never vanishes.
    expect(of(100, 180, 2).slice(2)).toEqual([1, 1]);
  });

  it("are empty beyond the recording", () => {
    expect(of(60, 140, 4).slice(0, 4)).toEqual([0, 0, 128, 128]);
  });
});
