import { describe, expect, it } from "vitest";
import type { GapHistogram } from "../src/api/gaps";
import type { StepsAnswer } from "../src/api/steps";
import type { Lane } from "../src/api/types";
import { nextMark } from "../src/charts/Plot";
import { layoutRows, MANY_LANES, rowAt, rowOfLane, rowsBetween } from "../src/charts/rows";
import { lineStyle, scaleColor } from "../src/charts/theme";
import { lang } from "../src/i18n";
import { binName, causesOf, usedBins } from "../src/views/gaps/GapHistogram";
import { heatValues } from "../src/views/gpus/Heat";
import { outliers } from "../src/views/steps/outliers";
import { rowsOf } from "../src/views/steps/StepsView";

lang.value = "en";

const lane = (id: number, host: string): Lane => ({
  id,
  kind: "gpu",
  host,
  gpu: id,
  label: `GPU ${id}`,
  name: "",
  hosts_file: host,
  intervals: 1,
});
const none = new Map<number, number>();

describe("the rows of the timeline", () => {
  it("are the GPUs alone where there is one host, or one GPU a host", () => {
    expect(layoutRows([lane(0, "a"), lane(1, "a")], new Set(), none).rows.map(({ kind }) => kind)).toEqual([
      "gpu",
      "gpu",
    ]);
    expect(layoutRows([lane(0, "a"), lane(1, "b")], new Set(["a"]), none).rows.map(({ kind }) => kind)).toEqual([
      "gpu",
      "gpu",
    ]);
  });

  it("fold a host to one row that stands for all of its GPUs", () => {
    const lanes = [lane(0, "a"), lane(1, "a"), lane(2, "b"), lane(3, "b")];
    const { rows } = layoutRows(lanes, new Set(["a"]), none);
    expect(rows.map(({ kind, lanes: held }) => [kind, held])).toEqual([
      ["host", [0, 1]],
      ["host", []],
      ["gpu", [2]],
      ["gpu", [3]],
    ]);
    expect(rowOfLane(rows, 1)).toBe(0);
    expect(rowOfLane(rows, 3)).toBe(3);
  });

  it("are folded at first when there are very many, and stay few to draw", () => {
    const lanes = Array.from({ length: 512 }, (_, i) => lane(i, `h${i >> 3}`));
    const folded = layoutRows(lanes, new Set(), none);
    expect(lanes.length).toBeGreaterThan(MANY_LANES);
    expect(folded.rows).toHaveLength(64);
    const open = layoutRows(lanes, new Set(lanes.map(({ host }) => host)), none);
    expect(open.rows).toHaveLength(64 + 512);
    const [first, last] = rowsBetween(open.rows, 3000, 3620);
    expect(last - first).toBeLessThan(50);
    expect(open.rows[first].top + open.rows[first].height).toBeGreaterThan(3000);
  });

  it("hold the streams of a GPU that was opened, and never overlap", () => {
    const { rows, total } = layoutRows([lane(7, "a"), lane(8, "a")], new Set(), new Map([[7, 3]]));
    expect(rows.map(({ kind, stream }) => stream ?? kind)).toEqual(["gpu", 0, 1, 2, "gpu"]);
    for (let i = 1; i < rows.length; i++)
      expect(rows[i].top).toBeGreaterThanOrEqual(rows[i - 1].top + rows[i - 1].height);
    expect(total).toBeGreaterThanOrEqual(rows[4].top + rows[4].height);
    for (const [i, row] of rows.entries()) expect(rowAt(rows, row.top + 1)).toBe(i);
    expect(rowAt(rows, -1)).toBe(-1);
  });
});

describe("marks of a chart", () => {
  const grid = [0, 1, 2, 3, 4, 5].map((i) => ({
    x: (i % 3) * 10,
    y: Math.floor(i / 3) * 10,
    width: 10,
    height: 10,
    text: "",
  }));

  it("are walked over by the arrow keys", () => {
    expect(nextMark(grid, -1, "ArrowDown")).toBe(0);
    expect(nextMark(grid, 0, "ArrowRight")).toBe(1);
    expect(nextMark(grid, 1, "ArrowDown")).toBe(4);
    expect(nextMark(grid, 4, "ArrowLeft")).toBe(3);
    expect(nextMark(grid, 3, "ArrowUp")).toBe(0);
    expect(nextMark(grid, 2, "ArrowRight")).toBe(2);
    expect(nextMark([], -1, "ArrowRight")).toBe(-1);
  });

  it("have colours that grow lighter, and lines that all differ", () => {
    const light = (color: string) => {
      const [r, g, b] = color.match(/\d+/g)!.map(Number);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const shades = Array.from({ length: 21 }, (_, i) => light(scaleColor(i / 20)));
    for (let i = 1; i < shades.length; i++) expect(shades[i]).toBeGreaterThan(shades[i - 1]);
    expect(scaleColor(Number.NaN)).toBe(scaleColor(0));
    expect(new Set(Array.from({ length: 32 }, (_, i) => JSON.stringify(lineStyle(i, false)))).size).toBe(32);
  });
});

describe("outliers", () => {
  it("are far above the median, of enough steps", () => {
    const even = Array.from({ length: 20 }, (_, i) => 100 + (i % 3));
    expect(outliers([...even, 131]).filter(Boolean)).toHaveLength(1);
    expect(outliers([...even, 131])[20]).toBe(true);
    // Under a quarter longer, or within the scatter.
    expect(outliers([...even, 120]).some(Boolean)).toBe(false);
    expect(outliers([60, 80, 100, 120, 140, 160, 90, 110, 150]).some(Boolean)).toBe(false);
    expect(outliers([1, 1, 1, 1, 1, 1, 9]).some(Boolean)).toBe(false);
    expect(outliers([...even, null, 300])[20]).toBe(false);
    expect(outliers([])).toEqual([]);
  });
});

const answer: StepsAnswer = {
  source: "marked",
  confidence: null,
  gpus: [
    { lane: 0, host: "a", gpu: 0 },
    { lane: 1, host: "a", gpu: 1 },
  ],
  steps: [
    { number: 3, count: 1, start_ps: 0, end_ps: 10e9 },
    { number: 4, count: 1, start_ps: 10e9, end_ps: 20e9 },
  ],
  steps_per_column: 1,
  total_steps: 2,
  wall_ps: [
    [10e9, 8e9],
    [10e9, null],
  ],
  longest_ps: [
    [10e9, 8e9],
    [10e9, null],
  ],
  late_ps: [
    [0, 1e9],
    [2e9, null],
  ],
  parts: ["compute", "communication_wait", "input"],
  parts_ps: {
    compute: [
      [6e9, 8e9],
      [5e9, null],
    ],
    communication_wait: [
      [4e9, 0],
      [5e9, null],
    ],
  },
};

describe("steps", () => {
  it("are rows whose parts fill them; what a GPU lacks is left out", () => {
    expect(rowsOf(answer, 0).map(({ wallMs, parts }) => [wallMs, parts.map(({ value }) => value)])).toEqual([
      [10, [6, 4]],
      [8, [8]],
    ]);
    expect(rowsOf(answer, 1).map(({ column, lateMs }) => [column, lateMs])).toEqual([[0, 2]]);
    expect(rowsOf({ ...answer, late_ps: null }, 1)[0].lateMs).toBeNull();
  });

  it("make heat maps of times and shares", () => {
    expect(heatValues(answer, "busy")).toEqual([
      [0.6, 1],
      [0.5, null],
    ]);
    expect(heatValues(answer, "wait")).toEqual([
      [4, 0],
      [5, null],
    ]);
    expect(heatValues(answer, "late")).toEqual([
      [0, 1],
      [2, null],
    ]);
    expect(heatValues({ ...answer, late_ps: null }, "late")[0]).toEqual([null, null]);
  });
});

describe("the histogram of gaps", () => {
  const histogram: GapHistogram = {
    edges_us: [0, 1, 2, 5],
    causes: {
      brand_new: { count: [0, 0, 1, 0], total_ms: [0, 0, 1, 0] },
      input: { count: [0, 2, 0, 0], total_ms: [0, 1, 0, 0] },
    },
  };

  it("names its bins and leaves empty ends out", () => {
    expect([0, 1, 3].map((i) => binName(histogram.edges_us, i))).toEqual(["0–1 µs", "1 µs–2 µs", "from 5 µs"]);
    expect(usedBins(histogram)).toEqual([1, 3]);
    expect(usedBins({ edges_us: [0], causes: {} })).toEqual([0, 0]);
    expect(causesOf(histogram)).toEqual(["input", "brand_new"]);
  });
});
