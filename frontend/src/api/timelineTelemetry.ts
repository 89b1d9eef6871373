import { getJson, type RequestOptions } from "./client";
import type { ProfileId } from "./types";

/** What NVML said while the profile was recorded; times on the clock of the lane's own file. */
export interface LaneTelemetry {
  metrics: string[];
  not_joined: string[];
  lanes: {
    lane: number;
    metric: string;
    time_ps: number[];
    folded: boolean;
    min: (number | null)[] | null;
    mean: (number | null)[];
    max: (number | null)[] | null;
  }[];
  bands: { lane: number; kind: string; reasons: string[]; start_ps: number; end_ps: number }[];
}

export const fetchLaneTelemetry = (
  { run, session }: ProfileId,
  metric: string,
  start: number,
  end: number,
  points: number,
  options?: RequestOptions,
) =>
  getJson<LaneTelemetry>(
    "timeline/telemetry",
    { run, session, metric, start_ps: Math.floor(start), end_ps: Math.ceil(end), points },
    options,
  );

/** Whether any of the values come from a stand-in driver: then they must say so. */
export async function isSimulated(
  { run, session }: ProfileId,
  lang: string,
  options?: RequestOptions,
): Promise<boolean> {
  const answer = await getJson<{ recordings: { simulated: boolean; joined: boolean | null }[] }>(
    "telemetry",
    { run, session, lang },
    options,
  );
  return answer.recordings.some(({ simulated, joined }) => simulated && joined !== false);
}
