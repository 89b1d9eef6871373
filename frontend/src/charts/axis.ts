import { formatDuration, formatNumber, timeUnit } from "../format";

/** The step (1, 2 or 5 times a power of ten) that puts about `wanted` ticks into a length. */
export function niceStep(length: number, wanted: number): number {
  const rough = length / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = rough / power;
  return (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10) * power;
}

export interface Axis {
  /** What the labels count from, as text; empty when they count from the profile's start. */
  base: string;
  ticks: { at: number; label: string }[];
}

/** More digits than this and labels count from a base instead of from the profile's start. */
const LONGEST_LABEL_DIGITS = 6;

/** Ticks over [startMs, endMs]; labels in the unit that suits the step. */
export function makeAxis(startMs: number, endMs: number, wanted: number): Axis {
  const step = niceStep(endMs - startMs, wanted);
  const [unit, unitMs] = timeUnit(step);
  const largest = Math.max(Math.abs(startMs), Math.abs(endMs));
  // Digits before the point at the far end plus those after it that a step needs.
  const needed = Math.ceil(Math.log10(largest / step + 1)) + 1;
  const relative = needed > LONGEST_LABEL_DIGITS;
  const first = Math.ceil(startMs / step - 1e-9);
  const base = relative ? first * step : 0;
  const ticks: Axis["ticks"] = [];
  for (let i = first; i * step <= endMs + step * 1e-9; i++) {
    const value = relative ? (i - first) * step : i * step;
    const label = axisLabel(value, relative ? step : Math.max(step, largest / 1000), unit, unitMs, relative);
    ticks.push({ at: i * step, label });
    if (ticks.length > 1000) break;
  }
  return { base: relative ? formatDuration(base, 3 + needed) : "", ticks };
}

function axisLabel(value: number, scale: number, unit: string, unitMs: number, relative: boolean): string {
  // Counted from zero, a tick reads best in one unit for the whole axis.
  const [name, size] = relative ? ([unit, unitMs] as const) : timeUnit(scale);
  const text = `${formatNumber(value / size, 9)} ${name}`;
  return relative && value > 0 ? `+${text}` : text;
}
