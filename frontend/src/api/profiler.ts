import type { ProfileId } from "./types";

/** What the stock Profiler beside us can open; null where it is not installed. */
export interface ProfilerInfo {
  runs: Set<string>;
}

/** The stock plugin's routes lie beside ours. */
const profilerUrl = (path: string, base: string) => new URL(`../profile/${path}`, base);

/** The run name the stock Profiler uses for a session. */
export const profilerRun = ({ run, session }: ProfileId): string => (run ? `${run}/${session}` : session);

async function json(url: URL, signal?: AbortSignal): Promise<unknown> {
  const response = await fetch(url, { signal });
  return response.ok ? await response.json() : null;
}

/**
 * Whether TensorBoard has loaded the stock plugin. Asked first, since asking a missing plugin
 * itself would put a 404 into the browser's console.
 */
async function isLoaded(base: string, signal?: AbortSignal): Promise<boolean> {
  const listing = await json(new URL("../../plugins_listing", base), signal);
  return listing === null || typeof listing !== "object" || "profile" in listing;
}

/** Asks once whether the stock Profiler is there and which runs it lists. */
export async function findProfiler(
  base: string = document.baseURI,
  signal?: AbortSignal,
): Promise<ProfilerInfo | null> {
  if (!(await isLoaded(base, signal))) return null;
  const version = await fetch(profilerUrl("version", base), { signal });
  if (version.status !== 200) return null;
  const runs = await json(profilerUrl("runs", base), signal);
  return Array.isArray(runs) ? { runs: new Set(runs.map(String)) } : null;
}

/** Hosts the Profiler knows for a session. It silently shows another host for an unknown one, so ask first. */
export async function profilerHosts(
  profile: ProfileId,
  base: string = document.baseURI,
  signal?: AbortSignal,
): Promise<string[]> {
  const url = profilerUrl("hosts", base);
  url.searchParams.set("run", profilerRun(profile));
  url.searchParams.set("tag", "trace_viewer@");
  const hosts = await json(url, signal);
  if (!Array.isArray(hosts)) return [];
  return hosts.map((entry) => String((entry as { hostname?: unknown } | null)?.hostname ?? "")).filter(Boolean);
}

/** To the nanosecond, without the noise of sums. */
const milliseconds = (ms: number): string => String(Math.round(ms * 1e6) / 1e6);

/** The stock trace viewer, stand-alone, at an exact range of the profile's own milliseconds. */
export function traceViewerUrl(
  profile: ProfileId,
  host: string,
  startMs: number,
  endMs: number,
  base: string = document.baseURI,
): string {
  const data = profilerUrl("data", base);
  data.search = new URLSearchParams({ run: profilerRun(profile), tag: "trace_viewer@", host, hosts: host }).toString();
  const url = profilerUrl("trace_viewer_index.html", base);
  url.search = new URLSearchParams({
    is_streaming: "true",
    is_oss: "true",
    trace_data_url: data.pathname + data.search,
    view_start: milliseconds(startMs),
    view_end: milliseconds(endMs),
  }).toString();
  return url.href;
}
