import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { CAUSES, WORK } from "../src/charts/palette";
import { chooseLang, fill, lang, plural, t, tId } from "../src/i18n";
import { en, parts as english } from "../src/i18n/en";
import { es, parts as spanish } from "../src/i18n/es";

const files = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? files(join(folder, entry.name)) : [join(folder, entry.name)],
  );

const holes = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]).sort();

describe("the catalogues", () => {
  it("have the same keys, none empty, with the same parameters", () => {
    expect(Object.keys(es).sort()).toEqual(Object.keys(en).sort());
    for (const [key, text] of Object.entries(en)) {
      expect(text.trim(), key).not.toBe("");
      expect(es[key as keyof typeof en].trim(), key).not.toBe("");
      expect(holes(es[key as keyof typeof en]), key).toEqual(holes(text));
    }
  });

  it("hold each key in one file only, the same file in both languages", () => {
    const place = (parts: Record<string, object>) =>
      Object.entries(parts).flatMap(([file, texts]) => Object.keys(texts).map((key) => `${file}: ${key}`));
    expect(place(spanish).sort()).toEqual(place(english).sort());
    const keys = Object.values(english).flatMap((texts) => Object.keys(texts));
    expect(keys.filter((key, i) => keys.indexOf(key) !== i)).toEqual([]);
    expect(keys).toHaveLength(Object.keys(en).length);
  });

  it("hold nothing that no part of the tab uses", () => {
    const source = files(fileURLToPath(new URL("../src", import.meta.url)))
      .filter((file) => !/[\\/]i18n[\\/](en|es)[\\/]/.test(file))
      .map((file) => readFileSync(file, "utf8"))
      .join("\n");
    // Words that keys are made of: `verdict_${...}`, tId("category", ...), definitions, plurals.
    const made = [...source.matchAll(/`(\w+)_\$\{/g), ...source.matchAll(/tId\(\s*"(\w+)"/g)].map((match) => match[1]);
    const used = (key: string): boolean =>
      new RegExp(`["\`]${key}["\`]`).test(source) ||
      made.some((stem) => key.startsWith(`${stem}_`)) ||
      /^term_|_hint$|^view_/.test(key) ||
      (/_(one|other)$/.test(key) && used(key.replace(/_(one|other)$/, "")));
    expect(Object.keys(en).filter((key) => !used(key))).toEqual([]);
  });

  it("have both forms of every plural", () => {
    for (const key of Object.keys(en).filter((each) => each.endsWith("_one"))) {
      expect(en).toHaveProperty(key.replace(/_one$/, "_other"));
    }
  });

  it("know every id of the vocabulary", () => {
    for (const id of [...WORK, ...CAUSES]) {
      expect(en).toHaveProperty(`category_${id}`);
      expect(en).toHaveProperty(`category_hint_${id}`);
    }
    for (const id of ["critical", "warning", "info"]) expect(en).toHaveProperty(`severity_${id}`);
    for (const id of ["critical", "warning", "ok", "cannot_tell"]) expect(en).toHaveProperty(`verdict_${id}`);
    for (const id of ["registers", "shared_memory", "block_size", "blocks"]) expect(en).toHaveProperty(`limiter_${id}`);
    for (const id of ["queued", "reading", "decoding", "analysing", "diagnosing"])
      expect(en).toHaveProperty(`stage_${id}`);
  });
});

describe("texts", () => {
  it("follow the language", () => {
    lang.value = "es";
    expect(t("close")).toBe("Cerrar");
    expect(plural("gaps", 1)).toBe("1 hueco");
    lang.value = "en";
    expect(plural("gaps", 20_000)).toBe("20,000 gaps");
    expect(plural("gaps", 1000)).toBe("1000 gaps");
  });

  it("show what they do not know as it is", () => {
    expect(tId("category", "brand_new")).toBe("brand_new");
    expect(fill("{a} {b}", { a: "{b}" })).toBe("{b} {b}");
  });

  it("choose the browser's first known language", () => {
    expect(chooseLang(null, ["de-DE", "es-MX", "en"])).toBe("es");
    expect(chooseLang(null, ["de"])).toBe("en");
    expect(chooseLang("es", ["en"])).toBe("es");
  });
});
