import { describe, expect, it } from "vitest";
import { CATEGORIES } from "../src/charts/palette";
import { chooseLang, fill, lang, plural, t, tId } from "../src/i18n";
import { en } from "../src/i18n/en";
import { es } from "../src/i18n/es";

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

  it("have both forms of every plural", () => {
    for (const key of Object.keys(en).filter((each) => each.endsWith("_one"))) {
      expect(en).toHaveProperty(key.replace(/_one$/, "_other"));
    }
  });

  it("know every id of the vocabulary", () => {
    for (const id of CATEGORIES) {
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
    expect(plural("kernels_shown", 1)).toBe("1 kernel");
    lang.value = "en";
    expect(plural("kernels_shown", 20_000)).toBe("20,000 kernels");
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
