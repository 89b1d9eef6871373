import { describe, expect, it } from "vitest";
import type { RecordedGpu, Recording, Series, TelemetryAnswer } from "../src/api/telemetry";
import { type Line, legendRows, seriesExtent, valueAt, valueAtPixel } from "../src/charts/series";
import { dateStep, dateTicks } from "../src/charts/timeAxis";
import { lang } from "../src/i18n";
import { metricsShown } from "../src/views/telemetry/Curves";
import {
  align,
  fittedRate,
  gpuLines,
  linesOf,
  MOST_LINES,
  pointsOf,
  statsOf,
  stepAt,
  throttleSums,
  timeOfStep,
  unitOf,
  wholeWindow,
} from "../src/views/telemetry/data";
import { eventRows } from "../src/views/telemetry/Events";
import { environmentFacts, problemsOf, reportText } from "../src/views/telemetry/environment";
import { isLive, lastMinutes, mayRun, stillWindow } from "../src/views/telemetry/follow";
import { shownWindow } from "../src/views/telemetry/state";
import { throttleSentence } from "../src/views/telemetry/words";

lang.value = "en";

const gpu = (id: number, more: Partial<RecordedGpu> = {}): RecordedGpu => ({
  id,
  label: `GPU ${id}`,
  uuid: `u${id}`,
  pci_bus_id: null,
  name: "H100",
  limits: {},
  samples: 10,
  lane: null,
  metrics: [],
  throttled: [],
  ...more,
});

const recording = (id: number, more: Partial<Recording> = {}): Recording => ({
  id,
  run: `r${id}`,
  host: "a",
  process_id: 1,
  simulated: false,
  memory_growth: null,
  judged: true,
  joined: true,
  not_joined_because: null,
  start_unix_ms: 1000,
  end_unix_ms: 9000,
  first_step: null,
  last_step: null,
  gpus: [gpu(0), gpu(1)],
  spans: [],
  spans_truncated: false,
  steps: null,
  environment: {},
  notes: [],
  ...more,
});

const answer = (recordings: Recording[], more: Partial<TelemetryAnswer> = {}): TelemetryAnswer => ({
  recordings,
  metrics: [],
  profile: null,
  steps_known: false,
  notes: [],
  problems: [],
  ...more,
});

const series = (values: (number | null)[], more: Partial<Series> = {}): Series => ({
  recording: 0,
  gpu: 0,
  metric: "power_watts",
  samples: values.length,
  folded: false,
  unix_ms: values.map((_, i) => 1000 * (i + 1)),
  step: values.map((_, i) => 10 * i),
  min: null,
  mean: values,
  max: null,
  ...more,
});

const throttled = (kind: "thermal" | "power", from: number, to: number, step: number | null = null) => ({
  kind,
  reasons: ["software_thermal"],
  start_unix_ms: from,
  end_unix_ms: to,
  start_step: step,
  end_step: step === null ? null : step + 5,
});

describe("lines of GPUs", () => {
  it("go on over restarts, and name the host where there are several", () => {
    const lines = gpuLines([recording(0), recording(1), recording(2, { host: "b" })]);
    expect(lines.map(({ name }) => name)).toEqual(["a · GPU 0", "a · GPU 1", "b · GPU 0", "b · GPU 1"]);
    expect(lines[0].places).toEqual([
      [0, 0],
      [1, 0],
    ]);
    expect(gpuLines([recording(0)]).map(({ name }) => name)).toEqual(["GPU 0", "GPU 1"]);
  });

  it("break where nothing was recorded for long, and merge values at one step", () => {
    const pause = series([1, 2, 3, 4], { unix_ms: [1000, 2000, 60_000, 61_000] });
    expect(pointsOf([pause], "time", 2).map(({ value }) => value)).toEqual([2, 4, null, 6, 8]);
    const same = series([1, 3, 9], { step: [5, 5, null] });
    expect(pointsOf([same], "step", 1)).toEqual([{ x: 5, value: 2 }]);
    expect(pointsOf([series([null, null])], "time", 1)).toEqual([]);
  });

  it("stand on one axis, each with its own times", () => {
    const { times, values } = align([
      [
        { x: 1, value: 10 },
        { x: 3, value: 30 },
      ],
      [{ x: 2, value: 20 }],
    ]);
    expect(times).toEqual([1, 2, 3]);
    expect(values).toEqual([
      [10, undefined, 30],
      [undefined, 20, undefined],
    ]);
  });

  it("share equal parts when the times are too many, and lose nothing that is alone in its part", () => {
    const points = Array.from({ length: 50 }, (_, i) => ({ x: i, value: i }));
    const { times, values } = align([points, [{ x: 49, value: 7 }]], 20, 10);
    expect(times).toHaveLength(10);
    expect(values[0].every((value) => typeof value === "number")).toBe(true);
    expect(values[1][9]).toBe(7);
    expect(values[1].slice(0, 9).every((value) => value === undefined)).toBe(true);
  });

  it("become the lowest, the median and the highest of many GPUs", () => {
    const many = MOST_LINES + 5;
    const gpus = gpuLines([recording(0, { gpus: Array.from({ length: many }, (_, i) => gpu(i)) })]);
    const all = Array.from({ length: many }, (_, i) => series([i, i + 100], { gpu: i }));
    const names = { low: "l", median: "m", high: "h" };
    const { times, lines } = linesOf(gpus, all, "power_watts", "time", 1, names);
    expect(lines.map(({ label }) => label)).toEqual(["l", "m", "h"]);
    const first = lines.map(({ values }) => values[0]);
    expect(first).toEqual([0, many >> 1, many - 1]);
    expect(lines.every(({ values }) => values.length === times.length)).toBe(true);
    const few = linesOf(gpus.slice(0, 3), all, "power_watts", "time", 1, names);
    expect(few.lines.map(({ label, style }) => [label, style])).toEqual([
      ["GPU 0", 0],
      ["GPU 1", 1],
      ["GPU 2", 2],
    ]);
    expect(linesOf(gpus, all, "other", "time", 1, names).lines).toEqual([]);
  });

  it("have a mean and a maximum, which is that of the folded samples", () => {
    expect(statsOf([series([1, null, 3])], 2)).toEqual({ mean: 4, max: 6 });
    expect(statsOf([series([1, 3], { max: [9, 4], folded: true })], 1)).toEqual({ mean: 2, max: 9 });
    expect(statsOf([], 1)).toEqual({ mean: null, max: null });
  });

  it("tell steps from times and times from steps", () => {
    const one = series([1, 1, 1], { step: [null, 10, 30] });
    expect(stepAt([one], 500)).toBeNull();
    expect(stepAt([one], 2500)).toBe(10);
    expect(stepAt([one], 99_000)).toBe(30);
    expect(timeOfStep([one], 12)).toBe(2000);
    expect(timeOfStep([one], 25)).toBe(3000);
    expect(timeOfStep([], 1)).toBeNull();
  });
});

describe("what is told of throttling", () => {
  const held = recording(0, {
    gpus: [
      gpu(0),
      gpu(1, { throttled: [throttled("thermal", 2000, 5000, 100), throttled("thermal", 6000, 7000, 300)] }),
    ],
    spans: [{ kind: "checkpoint", start_unix_ms: 3000, end_unix_ms: 4000, step: 120, note: "epoch 1" }],
  });

  it("sums up each GPU's stretches by kind", () => {
    const [sum] = throttleSums(answer([held]), gpuLines([held]));
    expect([sum.gpu.name, sum.kind, sum.seconds, sum.startStep, sum.endStep]).toEqual([
      "GPU 1",
      "thermal",
      4,
      100,
      305,
    ]);
    expect(throttleSentence(answer([held]), [sum])).toBe(
      "GPU 1 held back its clock because of heat for 4 s (steps 100 to 305).",
    );
  });

  it("does not call unknown what is none", () => {
    const metric = { id: "clock_event_reasons", tag: "", unit: "bits", counter: false, series: 1 };
    expect(throttleSentence(answer([], { metrics: [metric] }), [])).toMatch(/^No GPU/);
    expect(throttleSentence(answer([]), [])).toMatch(/did not say/);
  });

  it("shows it with all else that happened, on either axis", () => {
    const all = answer([held], { profile: { start_unix_ms: 4000, end_unix_ms: 4500 } });
    const rows = eventRows(all, gpuLines([held]), "time", []);
    expect(rows.map(({ name }) => name)).toEqual(["GPU 1", "Profile", "Checkpoint"]);
    expect(rows[0].happenings.map(({ start, end }) => [start, end])).toEqual([
      [2, 5],
      [6, 7],
    ]);
    const steps = eventRows(all, gpuLines([held]), "step", [series([1, 1, 1, 1, 1])]);
    expect(steps[0].happenings[0]).toMatchObject({ start: 100, end: 105 });
    expect(steps.find(({ name }) => name === "Profile")?.happenings[0]).toMatchObject({ start: 30, end: 30 });
    expect(eventRows(answer([recording(0)]), [], "time", [])).toEqual([]);
  });
});

describe("the metrics shown", () => {
  const metric = (id: string) => ({ id, tag: id, unit: "percent", counter: false, series: 1 });

  it("are the usual ones unless others were chosen, and never bits", () => {
    const all = ["utilization_percent", "power_watts", "clock_event_reasons", "fan_percent"].map(metric);
    expect(metricsShown(all, []).map(({ id }) => id)).toEqual(["utilization_percent", "power_watts"]);
    expect(metricsShown(all, ["fan_percent", "nonsense"]).map(({ id }) => id)).toEqual(["fan_percent"]);
    expect(metricsShown(all, ["clock_event_reasons"]).map(({ id }) => id)).toEqual([
      "utilization_percent",
      "power_watts",
    ]);
    expect(metricsShown([metric("x")], [])).toHaveLength(1);
    expect(metricsShown([], [])).toEqual([]);
  });

  it("have units for people", () => {
    expect(unitOf("bytes").factor * 2 ** 31).toBe(2);
    expect(unitOf("count")).toEqual({ label: "", factor: 1 });
  });
});

describe("the axis", () => {
  it("covers all recordings and the profile", () => {
    expect(wholeWindow(answer([]))).toBeNull();
    expect(wholeWindow(answer([recording(0), recording(1, { end_unix_ms: 20_000 })]))).toEqual({
      startMs: 1000,
      endMs: 20_000,
    });
    expect(wholeWindow(answer([recording(0)], { profile: { start_unix_ms: 500, end_unix_ms: 600 } }))).toEqual({
      startMs: 500,
      endMs: 9000,
    });
  });

  it("has round steps of time, and not too many", () => {
    expect(dateStep(60_000, 6)).toBe(10_000);
    expect(dateStep(3_600_000, 6)).toBe(600_000);
    for (const span of [50, 900, 20_000, 300_000, 7_200_000, 86_400_000, 40 * 86_400_000, 3e11]) {
      const ticks = dateTicks(1.7e12, 1.7e12 + span, 8);
      expect(ticks.length).toBeGreaterThan(0);
      expect(ticks.length).toBeLessThanOrEqual(9);
      for (const { at } of ticks) expect(at >= 1.7e12 && at <= 1.7e12 + span).toBe(true);
    }
  });

  it("reads pixels back as values", () => {
    expect(seriesExtent({ times: [5, 9], zoom: null })).toEqual([5, 9]);
    expect(seriesExtent({ times: [], zoom: { start: 1, end: 2 } })).toEqual([1, 2]);
    expect(seriesExtent({ times: [5] })[1]).toBeGreaterThan(5);
    expect(valueAtPixel(64, 664, [0, 10])).toBe(0);
    expect(valueAtPixel(664, 664, [0, 10])).toBe(10);
    expect(valueAtPixel(358, 664, [0, 10])).toBeCloseTo(5);
  });

  it("tells the last value before a time, but not over a break", () => {
    expect(valueAt([1, undefined, undefined], 2)).toBe(1);
    expect(valueAt([1, null, undefined], 2)).toBeNull();
    expect(valueAt([undefined], 0)).toBeNull();
  });

  it("puts the names of the lines into rows that fit", () => {
    const lines: Line[] = Array.from({ length: 7 }, (_, i) => ({ label: `GPU ${i}`, values: [], style: i }));
    const rows = legendRows(lines, 200, (text) => text.length * 7);
    expect(rows.flat()).toEqual(lines);
    expect(rows.length).toBeGreaterThan(2);
    expect(legendRows(lines, 2000, (text) => text.length * 7)).toHaveLength(1);
    expect(legendRows([], 200, () => 1)).toEqual([]);
  });
});

describe("batch sizes", () => {
  it("draw the fitted line", () => {
    expect(fittedRate(100, 10, 0.1)).toBeCloseTo(5000);
    expect(fittedRate(1, 0, 0)).toBeGreaterThan(0);
  });
});

describe("the environment", () => {
  const report = {
    system: "Linux",
    python: "3.11",
    driver: { version: "550", cuda_version: "12.4", gpus: [{ name: "H100" }, { name: "H100" }, {}] },
    frameworks: { tensorflow: { version: "2.21.0" }, jax: {} },
    libraries: { cudnn: [], nccl: [{ version: "2.20" }, { version: "2.20" }] },
    problems: [
      { severity: "info", text: "i", fix: [] },
      { severity: "critical", text: "c", fix: ["x"] },
    ],
  };

  it("shows the facts that are there, and nothing of those that are not", () => {
    const facts = Object.fromEntries(environmentFacts(report).map(({ label, value }) => [label, value]));
    expect(facts).toMatchObject({
      env_driver: "550",
      env_gpus: "2 × H100, 1 × GPU",
      env_frameworks: "tensorflow 2.21.0, jax",
      env_libraries: "nccl 2.20",
    });
    expect(environmentFacts({ driver: { error: "no NVML" } })).toEqual([{ label: "env_driver", value: "no NVML" }]);
    expect(environmentFacts({ driver: 3, frameworks: "x", libraries: null } as never)).toEqual([]);
  });

  it("puts the worst first, and bounds the rest", () => {
    expect(problemsOf(report).map(({ severity }) => severity)).toEqual(["critical", "info"]);
    expect(problemsOf({})).toEqual([]);
    const odd = [{ code: "of_the_future", text: "" }, "nonsense", null] as never[];
    expect(problemsOf({ problems: odd })).toEqual([{ severity: "info", text: "of_the_future", fix: [] }]);
    expect(reportText(report)).not.toContain("problems");
    expect(reportText({ system: "x".repeat(500) }, 100).length).toBeLessThan(110);
  });
});

describe("following a training", () => {
  it("is offered while the recording has just been written to", () => {
    const one = answer([recording(0)]);
    expect(mayRun(one, 9000 + 60_000)).toBe(true);
    expect(mayRun(one, 9000 - 60_000)).toBe(true);
    expect(mayRun(one, 9000 + 600_000)).toBe(false);
    expect(mayRun(one, 9000 - 600_000)).toBe(false);
    expect(mayRun(answer([]), 9000)).toBe(false);
  });

  it("shows the last minutes when paused, unless somebody has zoomed", () => {
    const one = answer([recording(0, { end_unix_ms: 1_000_000 })]);
    expect(stillWindow(one, true)).toBe(null);
    lastMinutes.value = "5";
    expect(stillWindow(one, true)).toEqual({ startMs: 700_000, endMs: 1_000_000 });
    expect(stillWindow(one, false)).toBe(null);
    shownWindow.value = { startMs: 1, endMs: 2 };
    expect(stillWindow(one, true)).toEqual({ startMs: 1, endMs: 2 });
    shownWindow.value = null;
    lastMinutes.value = "all";
  });

  it("tells a live answer from one of the past", () => {
    const past = { start_unix_ms: 1, end_unix_ms: 2, series: [] };
    expect(isLive(past)).toBe(false);
    expect(isLive({ ...past, now_unix_ms: 3, running: false, last_steps: [] })).toBe(true);
    expect(isLive(null)).toBe(false);
  });
});
