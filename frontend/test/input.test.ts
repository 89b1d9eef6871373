import { describe, expect, it } from "vitest";
import type { InputPipeline, InputStage } from "../src/api/input";
import { lang } from "../src/i18n";
import { atOnce, describeStage, geometryOf } from "../src/views/input/Graph";
import { pipelineSentence } from "../src/views/input/InputView";
import { heldShare, layoutOf, paceOf } from "../src/views/input/layout";

lang.value = "en";

const stage = (name: string, taken_by: number[], more: Partial<InputStage> = {}): InputStage => ({
  name,
  taken_by,
  role: "map",
  calls: 10,
  busy_ms: 5,
  wall_ms: 5,
  per_element_ms: 0.5,
  parallelism: null,
  concurrency: 2,
  autotuned: null,
  buffer: null,
  background: false,
  threads: [],
  thread_count: 0,
  waited_ms: 0,
  utilization: 0.9,
  calls_python: false,
  ...more,
});

const pipeline = (stages: InputStage[], more: Partial<InputPipeline> = {}): InputPipeline => ({
  host: "a",
  source: "tf_data",
  start_ps: 0,
  end_ps: 1,
  limiting: stages.length - 1,
  sets_pace: true,
  fetches: 4,
  fetch_ms: 40,
  consumers: [],
  element_bytes: null,
  prefetched: true,
  cpu_budget: null,
  cpu_share: null,
  cpu_full: false,
  waited: [{ lane: 0, ms: 30 }],
  stages,
  ...more,
});

describe("the graph of an input pipeline", () => {
  it("puts the training at the end of a chain", () => {
    const chain = pipeline([stage("Root", []), stage("Batch", [0]), stage("TFRecord", [1])]);
    const layout = layoutOf(chain);
    expect(layout.places.map(({ depth }) => depth)).toEqual([0, 1, 2, 3]);
    expect(layout.arrows).toEqual([
      [1, 0],
      [2, 1],
      [3, 2],
    ]);
    expect([layout.depths, layout.rows]).toEqual([4, 1]);
  });

  it("puts inputs of one stage beside each other, and a shared source behind all that take from it", () => {
    const zip = layoutOf(pipeline([stage("Zip", []), stage("A", [0]), stage("B", [0])]));
    expect(zip.places.map(({ depth, row }) => [depth, row])).toEqual([
      [0, 0],
      [1, 0],
      [2, 0],
      [2, 1],
    ]);
    const fed = layoutOf(pipeline([stage("Feed", []), stage("Feed", []), stage("Root", [0, 1])]));
    expect(fed.rows).toBe(2);
    expect(fed.arrows).toContainEqual([3, 1]);
    expect(fed.arrows).toContainEqual([3, 2]);
  });

  it("survives what no file should have", () => {
    const odd = layoutOf(pipeline([stage("A", [1]), stage("B", [0]), stage("C", [2, 99])]));
    expect(odd.places).toHaveLength(4);
    expect(odd.arrows.every(([from, to]) => from < 4 && to < 4)).toBe(true);
    expect(layoutOf(pipeline([])).depths).toBe(1);
  });

  it("goes across where there is room, else down, and always fits", () => {
    const layout = layoutOf(pipeline(Array.from({ length: 6 }, (_, i) => stage("S", i ? [i - 1] : []))));
    expect(geometryOf(layout, 1200).across).toBe(true);
    expect(geometryOf(layout, 340).across).toBe(false);
    for (const width of [300, 340, 700, 1200, 3000]) {
      const { across, box, height } = geometryOf(layout, width);
      expect((across ? layout.depths : layout.rows) * box).toBeLessThanOrEqual(width);
      expect(height).toBeGreaterThan(0);
    }
  });
});

describe("what is said of it", () => {
  const limiting = pipeline([
    stage("Root", [], { role: "glue" }),
    stage("ParallelMapV2", [0], { parallelism: 4, autotuned: true }),
  ]);
  const walls = new Map<number, number | null>([
    [0, 100],
    [1, null],
  ]);

  it("holds up the training only where a GPU felt it", () => {
    expect(heldShare(limiting, walls)).toBeCloseTo(0.3);
    expect(heldShare({ waited: [{ lane: 1, ms: 5 }] }, walls)).toBeNull();
    expect(heldShare({ waited: [] }, walls)).toBeNull();
    expect(paceOf(limiting, 0.3)).toBe("limits");
    expect(paceOf(limiting, null)).toBe("limits");
    expect(paceOf(limiting, 0.002)).toBe("slowest");
    expect(paceOf({ ...limiting, sets_pace: false }, 0.3)).toBe("slowest");
    expect(paceOf({ ...limiting, limiting: null, sets_pace: null }, 0.3)).toBe("unknown");
  });

  it("names the stage, what it takes and who waited", () => {
    expect(pipelineSentence(limiting, "limits", 0.3)).toBe(
      "ParallelMapV2 sets the pace: it is busy 90% of the time. One element takes it 500 µs, 4 at once. A GPU waited for this pipeline for up to 30% of its window. 4 elements were taken out, 10.0 ms each.",
    );
    expect(pipelineSentence({ ...limiting, prefetched: false }, "slowest", null)).toMatch(
      /holds up nobody.*no prefetch/,
    );
    expect(pipelineSentence({ ...limiting, limiting: null, fetches: 0 }, "unknown", null)).toBe(
      "Nothing tells which stage is the slowest.",
    );
    const full = { ...limiting, cpu_full: true, cpu_share: 0.95, cpu_budget: 16 };
    expect(pipelineSentence(full, "limits", null)).toMatch(/95% of the 16 cores/);
  });

  it("tells how the parallelism was set", () => {
    expect(atOnce(limiting.stages[1])).toBe("4 at once (tuned by tf.data)");
    expect(atOnce(stage("x", []))).toBe("2 at once");
    expect(describeStage(limiting, 1, "limits")).toContain("sets the pace");
    expect(describeStage(limiting, 0, "limits")).not.toContain("sets the pace");
  });
});
