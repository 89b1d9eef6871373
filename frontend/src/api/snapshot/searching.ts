import type { FindAnswer, Hit } from "../timelineRange";
import { number, overlap, type Values, type Whole } from "./whole";

/** The events of the streams whose name holds every word. */
export function find({ meta, streams }: Whole, params: Values): FindAnswer | null {
  if (!streams) return null;
  const words = String(params.query ?? "")
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean);
  const [start, end, limit] = [number(params.start_ps, 0), number(params.end_ps, 0), number(params.limit, 500)];
  const hits: Hit[] = [];
  for (const [at, { events, names }] of streams.entries()) {
    const lane = meta.lanes[at].id;
    if (!words.length || (params.lane !== undefined && number(params.lane, -1) !== lane)) continue;
    const wanted = names.map((name) => words.every((word) => name.toLowerCase().includes(word)));
    for (let i = 0; i < events.name.length; i++) {
      if (!wanted[events.name[i]] || overlap(start, end, events.start_ps[i], events.end_ps[i]) <= 0) continue;
      hits.push({
        lane,
        start_ps: events.start_ps[i],
        end_ps: events.end_ps[i],
        name: names[events.name[i]],
        op: "",
      });
    }
  }
  hits.sort((a, b) => a.start_ps - b.start_ps || a.lane - b.lane);
  const last = number(params.last, 0) === 1;
  const shown = limit ? (last ? hits.slice(-limit) : hits.slice(0, limit)) : [];
  return { matching: hits.length, truncated: hits.length > shown.length, hits: shown };
}
