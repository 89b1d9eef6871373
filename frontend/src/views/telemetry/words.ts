import type { TelemetryAnswer } from "../../api/telemetry";
import { momentOf, timeOf } from "../../charts/timeAxis";
import { formatDuration, formatInt } from "../../format";
import { t, tId } from "../../i18n";
import type { ThrottleSum } from "./data";

/** The time of day, in the browser's zone. */
export const clock = (unixMs: number): string => timeOf(unixMs);

export const moment = (unixMs: number): string => momentOf(unixMs);

const MOST = 4;

/** Which GPUs were held back, why and for how long; or that none was, or that nobody knows. */
export function throttleSentence(answer: TelemetryAnswer, sums: readonly ThrottleSum[]): string {
  if (!sums.length) {
    const asked = answer.metrics.some(({ id }) => id === "clock_event_reasons");
    return t(asked ? "throttle_none" : "throttle_unknown");
  }
  const told = sums
    .slice(0, MOST)
    .map(({ gpu, kind, seconds, startStep, endStep }) =>
      [
        t("throttle_one", { gpu: gpu.name, why: tId("throttle", kind), time: formatDuration(seconds * 1000) }),
        startStep === null ? "" : ` (${t("events_steps", { from: formatInt(startStep), to: formatInt(endStep) })})`,
      ].join(""),
    );
  const rest = sums.length > MOST ? ` ${t("and_more", { n: formatInt(sums.length - MOST) })}` : "";
  return `${told.join("; ")}${rest}.`;
}
