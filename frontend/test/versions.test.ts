import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { withVersion } from "../scripts/versions.mjs";

const STATIC = fileURLToPath(new URL("../../tb_gpu_doctor/plugin/static", import.meta.url));
const read = (name: string) => readFileSync(`${STATIC}/${name}`, "utf8");

describe("the modules of views", () => {
  it("are asked for in the version of the page", () => {
    expect(withVersion('import("./AView.js").then()', "12")).toBe('import("./AView.js?v=12").then()');
    expect(withVersion('import("./a.js?v=1"); import(`other`); from"./index.js"', "12")).not.toContain("12");
  });

  it("are those that the page names, and import nothing else", () => {
    const named = (text: string) => [...text.matchAll(/["'`]\.\/(\w+\.js)(?:\?v=\w+)?["'`]/g)].map(([, name]) => name);
    const there = readdirSync(STATIC).filter((name) => name.endsWith(".js") && name !== "report.js");
    expect(new Set(["index.js", ...there.flatMap((name) => named(read(name)))])).toEqual(new Set(there));
    expect(named(read("report.js"))).toEqual([]);
    expect(read("report.js")).not.toMatch(/\bimport\(/);
  });
});
