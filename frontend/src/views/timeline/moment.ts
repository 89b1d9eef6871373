import { useEffect, useState } from "preact/hooks";
import { fetchMoment } from "../../api/routes";
import type { MomentDetails, ProfileId } from "../../api/types";

const MOMENT_DELAY_MS = 130;

/** Details of a moment from the server, a moment after the pointer rests. */
export function useMoment(profile: ProfileId, lane: number | null, time: number | null): MomentDetails | null {
  const [moment, setMoment] = useState<{ lane: number; details: MomentDetails } | null>(null);
  useEffect(() => {
    if (lane === null || time === null) return;
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setMoment({ lane, details: await fetchMoment(profile, lane, time, { signal: controller.signal }) });
      } catch {
        // Details are an extra: what is loaded already shows the kind and the length.
      }
    }, MOMENT_DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [profile, lane, time]);
  if (!moment || moment.lane !== lane || time === null) return null;
  const { start_ps, end_ps } = moment.details;
  // An answer for another place of the lane says nothing about this one.
  return start_ps !== null && end_ps !== null && start_ps <= time && time < end_ps ? moment.details : null;
}
