import { describe, expect, it } from "vitest";
import { type Column, rowsInView, searchRows, sortRows } from "../src/ui/DataTable";
import { fileName, toCsv } from "../src/ui/export";

interface Row {
  name: string | null;
  size: number | null;
}

const columns: Column<Row>[] = [
  { key: "name", label: "Name", value: (row) => row.name },
  { key: "size", label: "Size", value: (row) => row.size, number: true },
];
const rows: Row[] = [
  { name: "beta", size: 2 },
  { name: null, size: 10 },
  { name: "Alpha two", size: null },
];
const sizes = (order: string) => sortRows(rows, columns, order).map(({ size }) => size);

describe("tables", () => {
  it("sort numbers as numbers, unknown ones last in both directions", () => {
    expect(sizes("size")).toEqual([2, 10, null]);
    expect(sizes("-size")).toEqual([10, 2, null]);
    expect(sizes("-nonsense")).toEqual([2, 10, null]);
    expect(sortRows(rows, columns, "name").map(({ name }) => name)).toEqual(["Alpha two", "beta", null]);
  });

  it("find every word in the columns of text", () => {
    expect(searchRows(rows, columns, "TWO alpha")).toEqual([rows[2]]);
    expect(searchRows(rows, columns, "10")).toEqual([]);
    expect(searchRows(rows, columns, " ")).toHaveLength(3);
  });

  it("put only the rows in view into the page", () => {
    const [first, last] = rowsInView(32_000, 480, 5000);
    expect(first).toBeLessThanOrEqual(1000);
    expect(last).toBeGreaterThanOrEqual(1015);
    expect(last - first).toBeLessThan(50);
    expect(rowsInView(1e6, 480, 10)).toEqual([10, 10]);
  });
});

describe("CSV", () => {
  it("quotes what needs it, and nothing runs as a formula", () => {
    expect(
      toCsv(
        ["a", 'b "c"'],
        [
          [1.5, "x,y"],
          [null, "=1+1"],
          [Number.NaN, "-k\nl"],
          [-2, true],
        ],
      ),
    ).toBe('a,"b ""c"""\r\n1.5,"x,y"\r\n,\'=1+1\r\n,"\'-k\nl"\r\n-2,true\r\n');
  });

  it("has a name that every file system takes", () => {
    expect(fileName(["train/résumé", "2026:01", null, "gaps"], "csv")).toBe("train_re_sume-2026_01-gaps.csv");
    expect(fileName(["../../etc/passwd"], "png")).toBe("etc_passwd.png");
    expect(fileName(["", "…"], "png")).toBe("gpu_doctor.png");
    expect(fileName(["x".repeat(500)], "csv").length).toBeLessThan(170);
  });
});
