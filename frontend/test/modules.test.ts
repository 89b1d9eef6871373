import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const SOURCE = fileURLToPath(new URL("../src", import.meta.url));

const files = (readdirSync(SOURCE, { recursive: true }) as string[])
  .map((name) => join(SOURCE, name))
  .filter((path) => statSync(path).isFile());
const modules = files.filter((path) => /\.tsx?$/.test(path));
const sheets = files.filter((path) => path.endsWith(".css"));
const shown = (path: string) => relative(SOURCE, path);

/** Types count as well: who needs a module's types cannot be read without it. */
function importsOf(path: string): string[] {
  const source = readFileSync(path, "utf8");
  return [...source.matchAll(/^(?:import|export)\b[^;]*?from "(\.[^"]*)";/gms)].map(([, target]) => {
    const at = join(dirname(path), target);
    const found = [`${at}.ts`, `${at}.tsx`, join(at, "index.ts"), at].find((each) => existsSync(each));
    if (!found) throw new Error(`${shown(path)} imports ${target}, which is not there`);
    return found;
  });
}

const graph = new Map(modules.map((path) => [path, importsOf(path)]));

/** A way from a module back to itself. */
function circleThrough(start: string): string[] | null {
  const before = new Map<string, string>();
  const queue = [start];
  for (const path of queue) {
    for (const next of graph.get(path) ?? []) {
      if (next === start) {
        const circle = [path];
        while (circle[0] !== start) circle.unshift(before.get(circle[0])!);
        return [...circle, start];
      }
      if (!before.has(next)) {
        before.set(next, path);
        queue.push(next);
      }
    }
  }
  return null;
}

describe("modules", () => {
  it("import each other in one direction only", () => {
    expect(graph.size).toBeGreaterThan(100);
    const circles = modules.flatMap((path) => circleThrough(path)?.map(shown).join(" > ") ?? []);
    expect(circles).toEqual([]);
  });

  it("know views only where the page is put together", () => {
    const outside = modules.filter((path) => /^(api|charts|i18n|state|styles|ui)\b/.test(shown(path)));
    const wrong = outside.flatMap((path) =>
      graph
        .get(path)!
        .map(shown)
        .filter((target) => /^(views|shell)\b/.test(target))
        .map((target) => `${shown(path)} > ${target}`),
    );
    expect(wrong).toEqual([]);
  });
});

/** Classes whose names are put together: by severity, verdict or outcome. */
const COMPOSED = /^(badge|card|verdict)-(critical|warning|info|ok|cannot_tell)$/;

describe("style sheets", () => {
  const classesOf = (path: string) => [
    ...new Set([...readFileSync(path, "utf8").matchAll(/\.([a-z][\w-]*)(?=[^{};]*\{)/g)].map(([, name]) => name)),
  ];
  /** A view may place a part of others within itself: `#compare .picker`. */
  const ownClassesOf = (path: string) => [
    ...new Set([...readFileSync(path, "utf8").matchAll(/^\s*\.([a-z][\w-]*)/gm)].map(([, name]) => name)),
  ];
  const sources = new Map(modules.map((path) => [path, readFileSync(path, "utf8")]));
  const uses = (source: string, name: string) => new RegExp(`["'\`\\s]${name}["'\`\\s]`).test(source);

  it("dress nothing that is not there", () => {
    const unused = sheets.flatMap((sheet) =>
      classesOf(sheet)
        .filter((name) => !COMPOSED.test(name) && ![...sources.values()].some((source) => uses(source, name)))
        .map((name) => `${shown(sheet)}: .${name}`),
    );
    expect(sheets.length).toBeGreaterThan(15);
    expect(unused).toEqual([]);
  });

  it("lie beside what they dress", () => {
    const strayed = sheets
      .filter((sheet) => shown(sheet).startsWith("views"))
      .flatMap((sheet) => {
        const beside = [...sources].filter(([path]) => dirname(path) === dirname(sheet)).map(([, source]) => source);
        return ownClassesOf(sheet)
          .filter((name) => !COMPOSED.test(name) && !beside.some((source) => uses(source, name)))
          .map((name) => `${shown(sheet)}: .${name}`);
      });
    expect(strayed).toEqual([]);
  });
});
