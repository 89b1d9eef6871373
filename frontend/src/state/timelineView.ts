import { computed } from "@preact/signals";
import { clampRange, length, type Range, widen } from "../charts/viewport";
import { meta, timeRange } from "./store";

/** The timeline's visible range, from the state in ms to the picoseconds of the data. */

export const PS_PER_MS = 1e9;
/** 10 ns: nothing on a GPU is shorter than that and worth a look. */
export const SHORTEST_PS = 10_000;
const DEFAULT_MARGIN = 0.03;

export const extent = computed<Range | null>(() => {
  const data = meta.value.data;
  return data ? { start: data.start_ps, end: Math.max(data.end_ps, data.start_ps + 1) } : null;
});

export const analysed = computed<Range | null>(() => {
  const window = meta.value.data?.window;
  return window ? { start: window.start_ps, end: window.end_ps } : null;
});

/** What is shown without a choice: the analysed window with a little around it. */
export const defaultView = computed<Range | null>(() => {
  const all = extent.value;
  if (!all) return null;
  return analysed.value && length(analysed.value) > 0 ? widen(analysed.value, DEFAULT_MARGIN, all) : all;
});

export const view = computed<Range | null>(() => {
  const all = extent.value;
  const range = timeRange.value;
  if (!all) return null;
  if (!range) return defaultView.value;
  return clampRange({ start: range.startMs * PS_PER_MS, end: range.endMs * PS_PER_MS }, all, SHORTEST_PS);
});

export function setView(range: Range | null): void {
  timeRange.value = range ? { startMs: range.start / PS_PER_MS, endMs: range.end / PS_PER_MS } : null;
}
