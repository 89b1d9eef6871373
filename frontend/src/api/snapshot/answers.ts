/** The answers of a report of one file: kept as they are, or made of what is kept. */

import { t } from "../../i18n";
import type { GapsAnswer } from "../gaps";
import type { StreamsAnswer } from "../timelineRange";
import type { LaneTelemetry } from "../timelineTelemetry";
import { accounting } from "./accounting";
import { loadSnapshot, type Snapshot } from "./file";
import { filteredGaps, moment, nextGap } from "./gaps";
import { cutEvents, resample, tooMany } from "./resampling";
import { find } from "./searching";
import { finest, type Kept, number, type Values, whole } from "./whole";

const DEFAULT_EVENTS = 200_000;

/** The name of an answer: the route and what tells it from others. */
export function answerName(route: string, params: Values): string {
  const kept = Object.keys(params)
    .filter((key) => key !== "run" && key !== "session" && params[key] !== "")
    .sort();
  return [route, ...kept.map((key) => `${key}=${params[key]}`)].join("|");
}

/** Routes whose answer does not depend on the language, though the tab says which it speaks. */
const SILENT = new Set(["sessions", "timeline/meta", "kernels"]);

/** The answer to a request: kept, or made of what is kept; null for what only a server knows. */
export function answerOf(snapshot: Snapshot, route: string, params: Values): ArrayBuffer | object | null {
  const made = computed(snapshot, route, params);
  if (made !== undefined) return made;
  const { lang, ...rest } = params;
  return snapshot.bytes(answerName(route, SILENT.has(route) ? rest : params));
}

interface Series {
  start_unix_ms: number | null;
  end_unix_ms: number | null;
  series: object[];
}

/** The series of several metrics, all of each. */
function series(kept: Kept, params: Values): Series {
  const found = String(params.metric ?? "")
    .split(",")
    .flatMap((metric) => kept.json<Series>(`telemetry/series|metric=${metric}`) ?? []);
  const known = (values: (number | null)[]) => values.filter((value): value is number => value !== null);
  const [starts, ends] = [known(found.map((f) => f.start_unix_ms)), known(found.map((f) => f.end_unix_ms))];
  return {
    start_unix_ms:
      params.start_unix_ms === undefined ? (starts.length ? Math.min(...starts) : null) : Number(params.start_unix_ms),
    end_unix_ms:
      params.end_unix_ms === undefined ? (ends.length ? Math.max(...ends) : null) : Number(params.end_unix_ms),
    series: found.flatMap((each) => each.series),
  };
}

/** What is made anew for each request; undefined: the answer is kept as it is; null: only a server knows. */
function computed(kept: Kept, route: string, params: Values): ArrayBuffer | object | null | undefined {
  switch (route) {
    case "gaps": {
      const answer = kept.json<GapsAnswer>("gaps");
      return answer && filteredGaps(answer, params);
    }
    case "telemetry/series":
      return series(kept, params);
    case "timeline/telemetry": {
      const answer = kept.json<LaneTelemetry>(`timeline/telemetry|lang=${params.lang ?? "en"}`);
      const wanted = String(params.metric ?? "").split(",");
      return answer && { ...answer, lanes: answer.lanes.filter(({ metric }) => wanted.includes(metric)) };
    }
  }
  if (!route.startsWith("timeline/") || route === "timeline/meta") return undefined;
  const all = whole(kept);
  if (!all) return null;
  const [start, end] = [number(params.start_ps, all.start), number(params.end_ps, all.end)];
  switch (route) {
    case "timeline/events":
      return all.events
        ? cutEvents(all.events, start, end, number(params.limit, DEFAULT_EVENTS))
        : tooMany(all.meta.lanes.reduce((sum, lane) => sum + lane.intervals, 0));
    case "timeline/bins":
    case "timeline/waits": {
      const block = finest(route === "timeline/bins" ? all.bins : all.waits, start, end);
      return block ? resample(block.bins, block, start, end, Math.max(1, number(params.width, 1))) : null;
    }
    case "timeline/range":
      return accounting(kept, all, start, end);
    case "timeline/find":
      return find(all, params);
    case "timeline/next_gap":
      return nextGap(all, params);
    case "timeline/at":
      return moment(kept, all, params);
    case "timeline/streams":
      return kept.json<StreamsAnswer>(`timeline/streams|lane=${params.lane}`);
  }
  return null;
}

/** As `fetch` of one of our routes would answer. */
export async function snapshotResponse(route: string, params: Values): Promise<Response> {
  const answer = answerOf(await loadSnapshot(), route, params);
  if (answer === null) {
    const error = { code: "not_kept", message: t("report_not_kept"), path: "" };
    return new Response(JSON.stringify({ error }), { status: 404 });
  }
  return new Response(answer instanceof ArrayBuffer ? answer : JSON.stringify(answer));
}
