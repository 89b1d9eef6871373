import { describe, expect, it } from "vitest";
import { layoutRows } from "../src/charts/rows";
import { cursorAt, movedCursor, type Shown } from "../src/views/timeline/cursor";

const lane = (id: number) => ({
  id,
  kind: "gpu",
  host: "a",
  gpu: id,
  label: `GPU ${id}`,
  name: "",
  hosts_file: "a",
  intervals: 1,
});
const { rows, total } = layoutRows([lane(0), lane(1), lane(2)], new Set(), new Map());
const gpus = rows.filter(({ kind }) => kind === "gpu");
const shown: Shown = { rows, range: { start: 1000, end: 2000 }, width: 100, height: total, scrollTop: 0 };
const nothing = () => null;

describe("the cursor", () => {
  it("is on the lane under the pointer, at its time", () => {
    const y = gpus[1].top + 1;
    expect(cursorAt(shown, 25, y)).toMatchObject({ lane: 1, time: 1250, x: 25, y, keyboard: false });
    const scrolled = { ...shown, scrollTop: gpus[1].top };
    expect(cursorAt(scrolled, 25, 1)).toMatchObject({ lane: 1, y: 1 });
  });

  it("is nowhere beside the lanes", () => {
    expect([cursorAt(shown, -1, 5), cursorAt(shown, 100, 5), cursorAt(shown, 5, total)]).toEqual([null, null, null]);
  });

  it("begins in the middle, moves by rows and stops at the last", () => {
    const first = movedCursor(shown, null, 0, 0, nothing);
    expect(first).toMatchObject({ lane: 0, time: 1500, x: 50, keyboard: true, y: gpus[0].top + gpus[0].height / 2 });
    expect(movedCursor(shown, first, 1, 0, nothing)).toMatchObject({ lane: 1, time: 1500 });
    expect(movedCursor(shown, first, 9, 0, nothing)).toMatchObject({ lane: 2 });
    expect(movedCursor(shown, first, -1, 0, nothing)).toMatchObject({ lane: 0 });
    expect(movedCursor({ ...shown, rows: [] }, first, 1, 0, nothing)).toBeNull();
  });

  it("goes beyond the edge of what is under it, else by a pixel, never out of the picture", () => {
    const at = movedCursor(shown, null, 0, 0, nothing);
    const interval = { start: 1400, end: 1600, category: "compute", name: null };
    expect(movedCursor(shown, at, 0, 1, () => interval)?.time).toBe(1601);
    expect(movedCursor(shown, at, 0, -1, () => interval)?.time).toBe(1399);
    expect(movedCursor(shown, at, 0, 1, nothing)?.time).toBe(1510);
    expect(movedCursor(shown, at, 0, 1, () => ({ ...interval, end: 9000 }))?.time).toBe(1999);
    expect(movedCursor(shown, at, 0, -1, () => ({ ...interval, start: 0 }))?.time).toBe(1000);
  });
});
