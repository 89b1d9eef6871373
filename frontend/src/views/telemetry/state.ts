import { choiceParam, indexParam, listParam, param, textParam } from "../../state/params";

/** What links keep of the view. */

/** Metrics that are drawn; empty: the usual ones. */
export const chosenMetrics = listParam("metrics", { ofProfile: false });
export const axisOf = choiceParam("telemetry_axis", ["time", "step"], { ofProfile: false });

export interface Window {
  startMs: number;
  endMs: number;
}

/** The stretch that is shown, in ms since 1970; null: all. */
export const shownWindow = param<Window | null>("telemetry_range", null, {
  parse: (text) => {
    const [startMs, endMs] = text.split("~").map(Number);
    return Number.isFinite(startMs) && endMs > startMs ? { startMs, endMs } : undefined;
  },
  format: (range) => (range ? `${Math.round(range.startMs)}~${Math.round(range.endMs)}` : ""),
});
export const gpuSort = textParam("telemetry_sort", "gpu", { ofProfile: false });
export const sweepChosen = indexParam("sweep");
export const sweepSort = textParam("sweep_sort", "batch", { ofProfile: false });
