import { describe, expect, it } from "vitest";
import type { ComparedRun, Comparison } from "../src/api/compare";
import type { HistoryAnswer, PastSession } from "../src/api/history";
import type { SessionInfo } from "../src/api/types";
import { lang } from "../src/i18n";
import { applyParams, paramState } from "../src/state/params";
import { besideFacts } from "../src/views/compare/Beside";
import { partRows, withinNoise } from "../src/views/compare/Parts";
import { binsOf, extentOf, unitTimes } from "../src/views/compare/spread";
import { comparable, compareWith, other, pairOf, sessionBefore, shownAs, turn } from "../src/views/compare/state";
import { formatChange, formatMoved } from "../src/views/compare/words";
import { levelsOf, lostParts, lostShares, matrixOf, runOf } from "../src/views/history/state";

lang.value = "en";

const info = (run: string, session: string, more: Partial<SessionInfo> = {}): SessionInfo => ({
  run,
  session,
  label: `${run} · ${session}`,
  hosts: ["a"],
  format: "xplane",
  size_bytes: 1,
  modified_unix_s: 0,
  problem: null,
  ...more,
});

const run = (more: Partial<ComparedRun> = {}): ComparedRun => ({
  label: "",
  verdict: "ok",
  format: "xplane",
  gpus: 1,
  models: ["H100"],
  hosts: 1,
  batch: null,
  steps: 2,
  step_source: "marked",
  time_ms: 10,
  median_step_ms: 10,
  step_ms: [8, 12],
  occupancy: 0.5,
  telemetry: {},
  ...more,
});

const comparison = (more: Partial<Comparison> = {}): Comparison => ({
  outcome: "same",
  unit: "step",
  headline: "",
  reasons: [],
  obstacles: [],
  confidence: 0.95,
  change: null,
  before: run(),
  after: run(),
  parts: [],
  findings: [],
  kernels: [],
  kernel_time_before_ms: 0,
  kernel_time_after_ms: 0,
  grids: null,
  ...more,
});

describe("the choice of what to compare", () => {
  const all = [
    info("a", "3"),
    info("b", "9"),
    info("a", "2", { problem: "broken" }),
    info("a", "1"),
    info("a", "telemetry", { format: "telemetry" }),
  ];

  it("offers profiles that can be read, and not the shown one", () => {
    expect(comparable(all, all[0]).map(({ run, session }) => run + session)).toEqual(["b9", "a1"]);
  });

  it("begins with the one before in the same run", () => {
    expect(sessionBefore(all, all[0])?.session).toBe("1");
    expect(sessionBefore(all, all[3])).toBeNull();
    expect(sessionBefore(all, info("c", "1"))).toBeNull();
  });

  it("puts the shown session last unless it was turned, batches with it", () => {
    const pair = pairOf(all[0], all[3], "after", { before: 8, after: 0 });
    expect(pair).toEqual({ before: all[3], after: all[0], batchBefore: 8, batchAfter: null });
    const turned = { before: all[0], after: all[3], batchBefore: null, batchAfter: 8 };
    expect(pairOf(all[0], all[3], "before", { before: 0, after: 8 })).toEqual(turned);
  });

  it("stays in links, whatever the names hold", () => {
    const odd = { run: "x/y~z,%", session: "2026,b/2027" };
    compareWith(odd, false);
    turn();
    turn();
    const state = paramState();
    expect(state).toMatchObject({ view: "compare", compare_as: "before" });
    applyParams({});
    expect(other.value).toBeNull();
    applyParams(state);
    expect([other.value, shownAs.value]).toEqual([odd, "before"]);
    applyParams({ compare_with: "no tilde" });
    expect(other.value).toBeNull();
    applyParams({ compare_with: "a~%E0%A4%A" });
    expect(other.value).toBeNull();
  });
});

describe("the picture of the steps", () => {
  it("scales steps to the unit of the mean", () => {
    expect(unitTimes(comparison(), "before")).toEqual([8, 12]);
    const perSample = comparison({ unit: "sample", before: run({ time_ms: 2.5, batch: 4, step_ms: [8, 12, null] }) });
    expect(unitTimes(perSample, "before")).toEqual([2, 3]);
    expect(unitTimes(comparison({ before: run({ step_ms: [], time_ms: null }) }), "before")).toEqual([]);
  });

  it("shows all steps unless a few would squeeze the rest", () => {
    const even = extentOf([
      [10, 11, 12],
      [20, 21],
    ]);
    expect(even?.cut).toBe(false);
    expect(even?.low).toBeLessThan(10);
    expect(even?.high).toBeGreaterThan(21);
    const many = Array.from({ length: 40 }, (_, i) => 10 + i / 40);
    const cut = extentOf([[...many, 900], many]);
    expect(cut?.cut).toBe(true);
    expect(cut?.high).toBeLessThan(20);
    expect(extentOf([[], []])).toBeNull();
    expect(extentOf([[5], []])?.high).toBeGreaterThan(5);
  });

  it("counts every step once, those beyond the end apart", () => {
    const values = Array.from({ length: 500 }, (_, i) => (i * 37) % 101);
    const bins = binsOf(values, { low: 0, high: 90, cut: true }, 17);
    expect(bins.counts.reduce((sum, count) => sum + count, 0) + bins.beyond).toBe(500);
    expect(bins.beyond).toBe(values.filter((value) => value > 90).length);
    for (const [i, members] of bins.members.entries())
      for (const member of members) expect(Math.min(16, Math.floor((values[member] / 90) * 17))).toBe(i);
  });
});

describe("the numbers of a comparison", () => {
  it("have signs", () => {
    expect(formatChange(-0.34)).toBe("−34%");
    expect(formatChange(0.051)).toBe("+5.1%");
    expect(formatChange(0.0001)).toBe("0%");
    expect(formatChange(null)).toBe("–");
    expect(formatMoved(-64.9)).toBe("−64.9 ms");
    expect(formatMoved(0)).toBe("0 ms");
  });

  it("are times, or shares where there are no steps", () => {
    const [time, share] = partRows(
      comparison({
        parts: [
          { part: "compute", before_ms: 3, after_ms: 4, difference_ms: { value: 1, low: -1, high: 2 } },
          { part: "input", before_share: 0.25, after_share: 0, difference_share: null },
        ],
      }),
    );
    expect(time).toMatchObject({ part: "compute", before: 3, after: 4 });
    expect(withinNoise(time)).toBe(true);
    expect(share).toMatchObject({ before: 0.25, after: 0, difference: null });
    expect(withinNoise(share)).toBe(false);
    expect(withinNoise({ ...time, difference: { value: 1, low: 0.5, high: 2 } })).toBe(false);
  });

  it("stand side by side, metrics that only one run has too", () => {
    const facts = besideFacts({ before: run({ telemetry: { power_watts: 300 } }), after: run({ batch: 32 }) });
    const power = facts.find(({ id }) => id === "power_watts");
    expect([power?.show(power.before), power?.show(power.after)]).toEqual(["300 W", "–"]);
    const batch = facts.find(({ id }) => id === "batch");
    expect([batch?.show(batch.before), batch?.show(batch.after)]).toEqual(["–", "32"]);
    expect(facts[0].show(facts[0].before)).toBe("healthy");
  });
});

describe("a history", () => {
  const session = (name: string, more: Partial<PastSession> = {}): PastSession => ({
    run: "a",
    session: name,
    time_unix_s: 0,
    problem: null,
    verdict: "ok",
    step_ms: 10,
    steps: 9,
    parts_ms: [6, 1, 2, 1],
    window_shares: [0.5, 0.1, 0.3, 0.1],
    occupancy: null,
    findings: [],
    ...more,
  });
  const answer = (more: Partial<HistoryAnswer> = {}): HistoryAnswer => ({
    headline: "",
    confidence: 0.95,
    parts: ["compute", "communication_wait", "input", "no_evidence"],
    sessions: [],
    changes: [],
    ...more,
  });
  const change = (at: number, before_ms: number, after_ms: number, metric: "step" | "idle" = "step") => ({
    metric,
    session_index: at,
    is_regression: after_ms > before_ms,
    before_ms,
    after_ms,
    change: { value: 0, low: 0, high: 0 },
    confidence: 1,
    sessions_before: 1,
    sessions_after: 1,
    sentence: "",
  });

  it("is of the run where that has several sessions", () => {
    const all = [info("a", "1"), info("a", "2"), info("b", "1"), info("b", "t", { format: "telemetry" })];
    expect(runOf("", all, all[0])).toBe("a");
    expect(runOf("", all, all[2])).toBeNull();
    expect(runOf("run", all, all[2])).toBe("b");
    expect(runOf("all", all, all[0])).toBeNull();
  });

  it("tells lost time from work", () => {
    expect(lostParts(answer().parts)).toEqual(["communication_wait", "input", "no_evidence"]);
    expect(lostShares(answer(), session("1"))).toEqual({ idle: 0.3, waiting: 0.1 });
    const { idle } = lostShares(answer(), session("1", { parts_ms: null }));
    expect(idle).toBeCloseTo(0.4);
    expect(lostShares(answer(), session("1", { parts_ms: null, window_shares: null })).idle).toBeNull();
  });

  it("keeps a level until the step time changes", () => {
    const sessions = ["1", "2", "3", "4", "5"].map((name) => session(name));
    expect(levelsOf(answer({ sessions }))).toEqual([]);
    const changes = [change(4, 20, 12), change(2, 10, 20), change(2, 1, 5, "idle")];
    expect(levelsOf(answer({ sessions, changes }))).toEqual([
      { from: 0, to: 1, ms: 10 },
      { from: 2, to: 3, ms: 20 },
      { from: 4, to: 4, ms: 12 },
    ]);
  });

  it("sorts findings by weight and keeps the worst of a session", () => {
    const found = (kind: string, severity: "critical" | "warning" | "info") => ({ kind, name: kind, severity });
    const rows = matrixOf([
      session("1", { findings: [found("small", "info")] }),
      session("2", { findings: [found("big", "warning"), found("big", "critical"), found("small", "info")] }),
    ]);
    expect(rows.map(({ kind }) => kind)).toEqual(["big", "small"]);
    expect(rows[0].severities).toEqual([null, "critical"]);
  });
});
