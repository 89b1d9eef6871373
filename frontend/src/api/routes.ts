import { type Bins, type EventColumns, parseBins, parseEvents } from "./binary";
import { getBytes, getJson, type RequestOptions } from "./client";
import type { Diagnosis, MomentDetails, ProfileId, SessionsAnswer, TimelineMeta } from "./types";

/** One function a route of docs/http_api.md. */

const id = ({ run, session }: ProfileId) => ({ run, session });

export const fetchSessions = (lang: string, options?: RequestOptions) =>
  getJson<SessionsAnswer>("sessions", { lang }, options);

export const fetchDiagnosis = (profile: ProfileId, lang: string, options?: RequestOptions) =>
  getJson<Diagnosis>("diagnosis", { ...id(profile), lang }, options);

/** Ends the server's work on a profile; nobody waits for the answer. */
export const stopAnalysis = (profile: ProfileId): void => {
  getJson("progress", { ...id(profile), cancel: 1 }).catch(() => {});
};

export const fetchMeta = (profile: ProfileId, lang: string, options?: RequestOptions) =>
  getJson<TimelineMeta>("timeline/meta", { ...id(profile), lang }, options);

export const fetchMoment = (profile: ProfileId, lane: number, timePs: number, options?: RequestOptions) =>
  getJson<MomentDetails>("timeline/at", { ...id(profile), lane, time_ps: Math.round(timePs) }, options);

export const fetchDoc = (page: string, lang: string, options?: RequestOptions) =>
  getJson<{ html: string }>("doc", { page, lang }, options);

const range = (start: number, end: number) => ({ start_ps: Math.floor(start), end_ps: Math.ceil(end) });

export async function fetchBins(
  profile: ProfileId,
  startPs: number,
  endPs: number,
  width: number,
  options?: RequestOptions,
): Promise<Bins> {
  return parseBins(
    await getBytes("timeline/bins", { ...id(profile), ...range(startPs, endPs), width: Math.round(width) }, options),
  );
}

export async function fetchEvents(
  profile: ProfileId,
  startPs: number,
  endPs: number,
  limit: number,
  options?: RequestOptions,
): Promise<EventColumns> {
  return parseEvents(await getBytes("timeline/events", { ...id(profile), ...range(startPs, endPs), limit }, options));
}
