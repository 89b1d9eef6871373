import { beforeEach, describe, expect, it } from "vitest";
import {
  cleanText,
  formatBytes,
  formatDuration,
  formatInt,
  formatMeasured,
  formatNumber,
  formatPercent,
  formatRange,
  fullText,
  shorten,
} from "../src/format";
import { lang } from "../src/i18n";

beforeEach(() => {
  lang.value = "en";
});

describe("numbers", () => {
  it("have about three digits", () => {
    expect([0, 1.2345, 12.345, 123.45, 1234.5, 0.00123456].map((value) => formatNumber(value))).toEqual([
      "0",
      "1.23",
      "12.3",
      "123",
      "1235",
      "0.00123",
    ]);
    expect(formatInt(1234567)).toBe("1,234,567");
  });

  it("speak the language of the page", () => {
    lang.value = "es";
    expect(formatNumber(1.5)).toBe("1,5");
    expect(formatPercent(0.055)).toBe("5,5\u00a0%");
    expect(formatInt(12345)).toBe("12.345");
  });

  it("are a dash where unknown, never zero", () => {
    for (const format of [formatNumber, formatInt, formatPercent, formatDuration, formatBytes]) {
      expect([format(null), format(undefined), format(Number.NaN)]).toEqual(["–", "–", "–"]);
    }
  });

  it("choose their unit", () => {
    expect([0, 1500, 12.34, 0.0456, 0.000007, 2e-9].map((ms) => formatDuration(ms))).toEqual([
      "0 ms",
      "1.5 s",
      "12.3 ms",
      "45.6 µs",
      "7 ns",
      "2 ps",
    ]);
    expect([10, 2048, 3_500_000_000].map((bytes) => formatBytes(bytes))).toEqual(["10 B", "2 KiB", "3.26 GiB"]);
    expect([0, 0.0004, 0.0123, 0.08, 0.5, 0.99, 0.9951, 0.99999, 1].map((share) => formatPercent(share))).toEqual([
      "0%",
      "<0.1%",
      "1.2%",
      "8.0%",
      "50%",
      "99%",
      "99.5%",
      "99.9%",
      "100%",
    ]);
  });

  it("have three digits where they stand in columns", () => {
    expect([0, 0.0089, 8.9, 9.996, 24.7, 223.4, 1234].map((ms) => formatMeasured(ms))).toEqual([
      "0 ms",
      "8.90 µs",
      "8.90 ms",
      "10.0 ms",
      "24.7 ms",
      "223 ms",
      "1.23 s",
    ]);
    expect(formatMeasured(null)).toBe("–");
  });

  it("tell the ends of a range apart", () => {
    expect(formatRange(40, 50.5)).toBe("40–50.5 ms");
    expect(formatRange(3.4, 1344.2)).toBe("0.003–1.344 s");
    expect(formatRange(1234.5678, 1234.5679)).toBe("1.2345678–1.2345679 s");
  });
});

describe("names from a trace", () => {
  it("are cut in the middle", () => {
    expect(shorten("abcdefghij", 7)).toBe("abc…hij");
    expect(shorten("short", 7)).toBe("short");
    expect(shorten("k".repeat(100_000), 60)).toHaveLength(60);
    expect(fullText("k".repeat(100_000)).length).toBeLessThan(2100);
  });

  it("cannot disguise themselves", () => {
    expect(cleanText("a\u202eb\u0007c\u2066d\u0000")).toBe("a\ufffdb\ufffdc\ufffdd\ufffd");
    expect(cleanText("two\nlines ünï <b>")).toBe("two\nlines ünï <b>");
  });
});
