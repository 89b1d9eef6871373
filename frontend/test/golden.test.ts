import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { parseEvents } from "../src/api/binary";
import { answerOf } from "../src/api/snapshot/answers";
import type { RangeAnswer } from "../src/api/timelineRange";
import { packed } from "./packed";

/** What the server answers (tests/plugin/test_timeline_golden.py), asked of what a report of one file keeps. */

const GOLDEN = fileURLToPath(new URL("../../tests/golden/timeline", import.meta.url));

type Kept = object | { base64: string };

interface Question {
  route: string;
  params: Record<string, string | number>;
  answer: Kept;
}

const bytesOf = (value: Kept): Uint8Array | null =>
  "base64" in value ? new Uint8Array(Buffer.from(value.base64, "base64")) : null;

/** Numbers that were added up in another order differ in their last digits. */
function rounded(value: unknown): unknown {
  if (typeof value === "number") return Number(value.toPrecision(9));
  if (Array.isArray(value)) return value.map(rounded);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, rounded(each)]));
  }
  return value;
}

/** The intervals of an answer in bytes, whatever their order, names spelled out. Times are as exact as the whole's. */
function intervals(bytes: ArrayBuffer, start: number, end: number) {
  const { count, truncated, basePs, unitPs, names, ...columns } = parseEvents(bytes);
  const rows = Array.from({ length: truncated ? 0 : count }, (_, i) => [
    columns.lane[i],
    Math.max(start, basePs + columns.start[i] * unitPs),
    Math.min(end, basePs + columns.end[i] * unitPs),
    columns.category[i],
    names[columns.name[i]] ?? null,
  ]);
  return { count, truncated, rows };
}

describe.each(readdirSync(GOLDEN).filter((name) => name.endsWith(".json")))("%s", (name) => {
  const { kept, questions } = JSON.parse(readFileSync(`${GOLDEN}/${name}`, "utf8")) as {
    kept: Record<string, Kept>;
    questions: Question[];
  };
  const snapshot = packed(
    Object.fromEntries(Object.entries(kept).map(([key, value]) => [key, bytesOf(value) ?? value])),
  );
  const hasIntervals = "timeline/events" in kept;

  it.each([...new Set(questions.map(({ route }) => route))])("answers %s as the server does", (route) => {
    const asked = questions.filter((question) => question.route === route);
    expect(asked.length).toBeGreaterThan(0);
    for (const { params, answer } of asked) {
      const found = answerOf(snapshot, route, { run: "r", session: "s", ...params });
      const wanted = bytesOf(answer);
      if (route === "timeline/events") {
        const [low, high] = [Number(params.start_ps), Number(params.end_ps)];
        const server = intervals(wanted!.slice().buffer as ArrayBuffer, low, high);
        expect(intervals(found as ArrayBuffer, low, high), JSON.stringify(params)).toEqual(server);
      } else if (wanted) {
        expect(new Uint8Array(found as ArrayBuffer), JSON.stringify(params)).toEqual(wanted);
      } else if (route === "timeline/range" && !hasIntervals) {
        // Bins are shares of pixels, rounded up: each is too high by less than one part of 255.
        const [server, report] = [answer as RangeAnswer, found as RangeAnswer];
        const most = (server.end_ps - server.start_ps) / 1e9 / 255;
        for (const [i, { ms }] of report.lanes.entries()) {
          expect(Object.keys(ms).sort()).toEqual(Object.keys(server.lanes[i].ms).sort());
          for (const [category, value] of Object.entries(ms)) {
            const over = value - server.lanes[i].ms[category];
            expect(over).toBeGreaterThan(-1e-12);
            expect(over).toBeLessThan(most);
          }
        }
      } else {
        expect(rounded(found), JSON.stringify(params)).toEqual(rounded(answer));
      }
    }
  });
});
