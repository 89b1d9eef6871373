import { type Bins, type EventColumns, parseBins, parseEvents } from "./binary";
import { getBytes, getJson, post, type RequestOptions } from "./client";
import type { Diagnosis, MomentDetails, ProfileId, SessionsAnswer, TimelineMeta } from "./types";

/** One function a route of docs/http_api.md. */

const id = ({ run, session }: ProfileId) => ({ run, session });

export const fetchSessions = (lang: string, options?: RequestOptions) =>
  getJson<SessionsAnswer>("sessions", { lang }, options);

export const fetchDiagnosis = (profile: ProfileId, lang: string, options?: RequestOptions) =>
  getJson<Diagnosis>("diagnosis", { ...id(profile), lang }, options);

/** This page waits no longer; the server's work on a profile ends unless another page does. */
export const stopAnalysis = (profile: ProfileId): void => {
  void post("cancel", id(profile));
};

/** Lets a failed analysis begin anew with the next question. */
export const retryAnalysis = (profile: ProfileId): Promise<void> => post("retry", id(profile));

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
