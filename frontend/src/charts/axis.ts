import { formatDuration, formatNumber, timeUnit } from "../format";

/** The step (1, 2 or 5 times a power of ten) that puts about `wanted` ticks into a length. */
export function niceStep(length: number, wanted: number): number {
  const rough = length / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  // A hair less, since lengths are differences of large numbers.
  const factor = (rough / power) * 0.999;
  return (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10) * power;
}

export interface Axis {
  /** What the labels count from, as text; empty when they count from the profile's start. */
  base: string;
  ticks: { at: number; label: string }[];
}

/** More digits than this and labels count from a base instead of from the profile's start. */
const LONGEST_LABEL_DIGITS = 6;

/** Ticks over [startMs, endMs], in one unit. */
export function makeAxis(startMs: number, endMs: number, wanted: number): Axis {
  const step = niceStep(endMs - startMs, wanted);
  const largest = Math.max(Math.abs(startMs), Math.abs(endMs));
  // Digits before the point at the far end plus those after it that a step needs.
  const needed = Math.ceil(Math.log10(largest / step + 1)) + 1;
  const relative = needed > LONGEST_LABEL_DIGITS;
  const [unit, unitMs] = timeUnit(relative ? step : largest);
  // Plus 0: no tick is labelled -0.
  const first = Math.ceil(startMs / step - 1e-9) + 0;
  const offset = relative ? first : 0;
  const ticks: Axis["ticks"] = [];
  for (let i = first; i * step <= endMs + step * 1e-9; i++) {
    const text = `${formatNumber(((i - offset) * step) / unitMs, LONGEST_LABEL_DIGITS + 3)} ${unit}`;
    ticks.push({ at: i * step, label: relative && i > offset ? `+${text}` : text });
    if (ticks.length > 1000) break;
  }
  return { base: relative ? formatDuration(first * step, 3 + needed) : "", ticks };
}
