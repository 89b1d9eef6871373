import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { keyless, keylessSpanish, readTexts } from "../scripts/keyless.mjs";
import { parts as english } from "../src/i18n/en";
import { parts as spanish } from "../src/i18n/es";
import { zip } from "../src/i18n/zip";

const path = (language: string, part: string) =>
  fileURLToPath(new URL(`../src/i18n/${language}/${part}.ts`, import.meta.url));
const read = (language: string, part: string) => readFileSync(path(language, part), "utf8");

describe("the Spanish texts of the built module", () => {
  it("are those of the catalogues, under the same keys", () => {
    for (const [part, texts] of Object.entries(spanish)) {
      const built = keyless(read("es", part), read("en", part), path("es", part));
      const values = JSON.parse(/zip\(en, (\[.*\])\);$/.exec(built)?.[1] ?? "") as string[];
      expect(zip(english[part as keyof typeof english], values), part).toEqual(texts);
    }
  });

  it("are refused where a catalogue is no plain one or lacks a text", () => {
    const en = 'export const x = {\n  a: "A",\n  b: "B",\n} as const;\n';
    const es = (body: string) => `import type { Texts } from "..";\nexport const x: Texts<typeof en> = {${body}};\n`;
    expect(readTexts(en, "x.ts")).toEqual({ name: "x", texts: { a: "A", b: "B" } });
    expect(keyless(es('b: "Be", a: "Á"'), en, "es/x.ts")).toContain('zip(en, ["Á","Be"])');
    expect(() => keyless(es('a: "Á"'), en, "x.ts")).toThrow(/no text for b/);
    expect(() => keyless(es('a: "Á", b: "Be", c: "Ce"'), en, "x.ts")).toThrow(/more texts/);
    expect(() => readTexts("export default 3;", "x.ts")).toThrow(/not a catalogue/);
  });

  it("concern no other file", () => {
    const { transform } = keylessSpanish() as unknown as { transform: (code: string, id: string) => unknown };
    expect(transform("", "/a/src/i18n/es/index.ts")).toBeNull();
    expect(transform("", "/a/src/i18n/en/common.ts")).toBeNull();
    expect(transform("", "/a/src/views/es.ts")).toBeNull();
  });
});
