import { describe, expect, it } from "vitest";
import type { KernelDevice, KernelRow, TreeNode } from "../src/api/kernels";
import { FAMILIES, familyCategory, TENSOR_CLASSES, tensorCategory } from "../src/charts/families";
import { paintOf } from "../src/charts/palette";
import { lang } from "../src/i18n";
import { en } from "../src/i18n/en";
import { changeWords } from "../src/views/kernels/Chosen";
import { decades, radiusOf } from "../src/views/kernels/Scatter";
import { childrenOf, icicle, nodeAt, pathOf, placeOf } from "../src/views/kernels/tree";
import {
  chosenRow,
  efficiencySentence,
  occupancySentence,
  rowGpus,
  rowsOfDevice,
  searchWords,
  sharedBytes,
  tensorShare,
} from "../src/views/kernels/words";

lang.value = "en";

const row = (id: number, more: Partial<KernelRow> = {}): KernelRow => ({
  id,
  device: 0,
  devices: [0],
  name: `k${id}`,
  op: "",
  calls: 1,
  total_ms: 10 - id,
  mean_us: 1,
  min_us: 1,
  max_us: 1,
  share: 0.1,
  registers: null,
  static_shared_bytes: null,
  dynamic_shared_bytes: null,
  grid: null,
  block: null,
  blocks: null,
  occupancy: null,
  limiter: null,
  recorded_occupancy: null,
  occupancy_differs: false,
  achieved_occupancy: null,
  waves: null,
  tail: null,
  sm_share: null,
  wave_blocks: null,
  family: "other",
  persistent: false,
  tensor_cores: null,
  data_type: null,
  bound: null,
  ...more,
});

const device = (id: number, more: Partial<KernelDevice> = {}): KernelDevice => ({
  host: "a",
  id,
  name: null,
  kernel_ms: 10,
  window_ms: 20,
  occupancy: null,
  occupancy_coverage: null,
  achieved_occupancy: null,
  sm_share: null,
  sm_efficiency: null,
  tensor_cores_ms: null,
  families_ms: {},
  ...more,
});

describe("what is said of the kernels", () => {
  it("says the occupancy shortly", () => {
    const sentence = (...values: (number | null)[]) =>
      occupancySentence({ devices: values.map((occupancy, id) => device(id, { occupancy })) }, false);
    expect(sentence(0.37, 0.371)).toMatch(/: 37% on every GPU/);
    expect(sentence(0.37, null)).toMatch(/: GPU 0 37%\.$/);
    expect(sentence(0.2, 0.3, 0.4, 0.5, 0.6)).toMatch(/20% to 60%/);
    expect(sentence(null)).toMatch(/unknown/);
  });

  it("says the efficiency only where it is known", () => {
    expect(efficiencySentence([device(0)])).toBe("");
    expect(efficiencySentence([device(0, { sm_efficiency: 0.5 }), device(1)])).toContain("50%");
    expect(efficiencySentence([device(0, { sm_efficiency: 0.5 }), device(1, { sm_efficiency: 0.75 })])).toContain(
      "50% to 75%",
    );
  });

  it("weights the tensor cores of the GPUs by their time", () => {
    const ms = (used: number, unused: number) => ({ used, unused, not_eligible: 0, unknown: 0 });
    expect(tensorShare([device(0)])).toBeNull();
    expect(tensorShare([device(0, { tensor_cores_ms: ms(0, 0) })])).toBeNull();
    expect(
      tensorShare([device(0, { tensor_cores_ms: ms(9, 1) }), device(1, { tensor_cores_ms: ms(0, 90) }), device(2)]),
    ).toEqual({ used: 0.09, unknown: 0 });
    const all = { used: 0, unused: 0, not_eligible: 1, unknown: 3 };
    expect(tensorShare([device(0, { tensor_cores_ms: all })])).toEqual({ used: 0, unknown: 0.75 });
  });

  it("names the GPUs of a row", () => {
    const devices = [device(0), device(1), device(2)];
    expect(rowGpus(row(0, { device: 1, devices: [1] }), devices, false)).toBe("GPU 1");
    expect(rowGpus(row(0, { device: null, devices: [0, 1, 2] }), devices, false)).toBe("All 3 GPUs");
    expect(rowGpus(row(0, { device: null, devices: [0, 2] }), devices, false)).toBe("GPUs 0, 2");
  });

  it("chooses the longest kernel that computes, unless a link says otherwise", () => {
    const rows = [row(0, { family: "communication", occupancy: 0.3 }), row(1), row(2, { occupancy: 0.5 })];
    expect(chosenRow(rows, null)?.id).toBe(2);
    expect(chosenRow(rows, 1)?.id).toBe(1);
    expect(chosenRow(rows, 99)?.id).toBe(2);
    expect(chosenRow(rows.slice(0, 2), null)?.id).toBe(0);
    expect(chosenRow([], 3)).toBeNull();
  });

  it("leaves the rows of a GPU, summed up or not", () => {
    const rows = [row(0), row(1, { device: null, devices: [0, 1] }), row(2, { device: 1, devices: [1] })];
    expect(rowsOfDevice(rows, null)).toHaveLength(3);
    expect(rowsOfDevice(rows, 1).map(({ id }) => id)).toEqual([1, 2]);
  });

  it("adds both kinds of shared memory, where any is known", () => {
    expect(sharedBytes(row(0))).toBeNull();
    expect(sharedBytes(row(0, { static_shared_bytes: 5 }))).toBe(5);
    expect(sharedBytes(row(0, { static_shared_bytes: 5, dynamic_shared_bytes: 7 }))).toBe(12);
  });

  it("searches for a kernel by what its name holds", () => {
    const long = `<${"float, ".repeat(40)}>`;
    for (const name of ["ncclKernel", "void a::b<int>(float)", `void a::bn_kernel${long}`, `void (anonymous)${long}`]) {
      const words = searchWords(name).split(/\s+/).filter(Boolean);
      expect(words.length).toBeGreaterThan(0);
      for (const word of words) expect(name).toContain(word);
    }
    expect(searchWords(`void a::bn_kernel${long}`)).toBe("a::bn_kernel");
  });

  it("words a change of the launch", () => {
    expect(
      changeWords([
        { what: "registers", from: 96, to: 56 },
        { what: "shared_bytes", from: 4096, to: 2048 },
      ]),
    ).toBe("registers 96 → 56 + shared memory 4 KiB → 2 KiB");
  });
});

describe("the scatter", () => {
  it("spans whole powers of ten", () => {
    expect(decades(0.02, 450)).toEqual([-2, 3]);
    expect(decades(1, 1)).toEqual([0, 1]);
    expect(decades(0, 0)).toEqual([-9, -8]);
  });

  it("draws areas in proportion to shares", () => {
    expect(radiusOf(0.4, 0.4) ** 2 / radiusOf(0.1, 0.4) ** 2).toBeCloseTo(4);
    expect(radiusOf(0, 0.4)).toBeGreaterThan(0);
    expect(radiusOf(0, 0)).toBeGreaterThan(0);
  });
});

describe("the tree", () => {
  const node = (parent: number, kind: TreeNode["kind"], name: string, total_ms: number): TreeNode => ({
    parent,
    kind,
    name,
    total_ms,
    calls: 1,
    share: 0,
    occupancy: null,
    achieved_occupancy: null,
    sm_share: null,
    tensor_cores: null,
    family: kind === "kernel" ? "matmul" : null,
  });
  const nodes = [
    node(-1, "scope", "model", 6),
    node(0, "scope", "a/b", 4),
    node(1, "op", "MatMul", 4),
    node(2, "kernel", "gemm", 3),
    node(2, "kernel", "splitk", 1),
    node(0, "op", "Add", 2),
    node(-1, "op", "", 4),
  ];
  const children = childrenOf(nodes);

  it("knows who lies below whom", () => {
    expect(children[nodes.length]).toEqual([0, 6]);
    expect(children[0]).toEqual([1, 5]);
    expect(pathOf(nodes, 4)).toEqual([0, 1, 2, 4]);
    expect(pathOf(nodes, -1)).toEqual([]);
  });

  it("finds every place of a link again, and the whole for others", () => {
    for (const i of nodes.keys()) expect(nodeAt(nodes, children, placeOf(nodes, i))).toBe(i);
    expect(nodeAt(nodes, children, "")).toBe(-1);
    expect(nodeAt(nodes, children, "smodel/skeras")).toBe(-1);
  });

  it("lays children inside their parents, as wide as their time", () => {
    const cells = icicle(nodes, children, -1, 0, 10);
    expect(cells).toHaveLength(nodes.length);
    for (const cell of cells) {
      expect(cell.width).toBeCloseTo(nodes[cell.node].total_ms / 10);
      const above = cells.find(({ node: at }) => at === nodes[cell.node].parent);
      if (!above) continue;
      expect(cell.depth).toBe(above.depth + 1);
      expect(cell.left).toBeGreaterThanOrEqual(above.left - 1e-9);
      expect(cell.left + cell.width).toBeLessThanOrEqual(above.left + above.width + 1e-9);
    }
  });

  it("shows a part as wide as all, without what is too small or too deep", () => {
    const part = icicle(nodes, children, 0, 0, 10);
    expect(part.filter(({ depth }) => depth === 0).reduce((sum, { width }) => sum + width, 0)).toBeCloseTo(1);
    expect(icicle(nodes, children, -1, 0.15, 10).map(({ node: at }) => at)).not.toContain(4);
    expect(icicle(nodes, children, -1, 0, 1).map(({ node: at }) => at)).toEqual([0, 6]);
    expect(icicle([], [[]], -1, 0, 5)).toEqual([]);
  });
});

describe("the colours of kernels", () => {
  it("have a name, a meaning and another look each, in both themes", () => {
    const ids = [...FAMILIES.map(familyCategory), ...TENSOR_CLASSES.map(tensorCategory)];
    for (const id of ids) {
      expect(en).toHaveProperty(`category_${id}`);
      expect(en).toHaveProperty(`category_hint_${id}`);
    }
    for (const dark of [false, true]) {
      const looks = FAMILIES.map(familyCategory).map((id) => JSON.stringify(paintOf(id, dark)));
      expect(new Set(looks).size).toBe(FAMILIES.length);
    }
  });
});
