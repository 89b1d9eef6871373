/** How the step times of two runs lie: bins over one axis, drawn as dots where each fits, else as bars. */

import type { Comparison } from "../../api/compare";

/** The step times per unit, those that are known. */
export function unitTimes(answer: Comparison, which: "before" | "after"): number[] {
  const run = answer[which];
  // Steps come whole; where the batches differ the mean is per sample.
  const perUnit = answer.unit === "sample" ? 1 / (unitBatch(answer, which) ?? Number.NaN) : 1;
  return run.step_ms.flatMap((ms) => (ms === null || !Number.isFinite(ms * perUnit) ? [] : [ms * perUnit]));
}

/** Samples in a step: as recorded or given, so that the mean of the steps is the mean per sample. */
function unitBatch(answer: Comparison, which: "before" | "after"): number | null {
  const run = answer[which];
  const known = run.step_ms.filter((ms): ms is number => ms !== null);
  if (!known.length || !run.time_ms) return run.batch;
  return known.reduce((sum, ms) => sum + ms, 0) / known.length / run.time_ms;
}

export interface Extent {
  low: number;
  high: number;
  /** Whether times beyond the high end exist: one slow first step must not squeeze all others. */
  cut: boolean;
}

const quantile = (sorted: readonly number[], share: number): number => sorted[Math.floor(share * (sorted.length - 1))];

/** The axis that shows both runs; null without any step. */
export function extentOf(runs: readonly (readonly number[])[]): Extent | null {
  const all = runs.flat().sort((a, b) => a - b);
  if (!all.length) return null;
  const low = all[0];
  const most = all[all.length - 1];
  // Each run's own bulk: one run may hold far fewer steps than the other.
  const bulk = Math.max(
    ...runs
      .filter((run) => run.length)
      .map((run) =>
        quantile(
          [...run].sort((a, b) => a - b),
          0.9,
        ),
      ),
  );
  const wide = Math.max(bulk - low, low * 0.02, 1e-9);
  const cut = most > bulk + 2 * wide;
  const high = cut ? bulk + wide : most;
  const margin = Math.max((high - low) * 0.06, high * 0.005, 1e-9);
  return { low: Math.max(0, low - margin), high: high + margin, cut };
}

export interface Bins {
  counts: number[];
  /** The values of each bin, as their places in the list. */
  members: number[][];
  beyond: number;
}

export function binsOf(values: readonly number[], extent: Extent, count: number): Bins {
  const counts = new Array<number>(count).fill(0);
  const members: number[][] = counts.map(() => []);
  let beyond = 0;
  for (const [i, value] of values.entries()) {
    if (value > extent.high) {
      beyond += 1;
      continue;
    }
    const at = Math.min(
      count - 1,
      Math.max(0, Math.floor(((value - extent.low) / (extent.high - extent.low)) * count)),
    );
    counts[at] += 1;
    members[at].push(i);
  }
  return { counts, members, beyond };
}

export const mean = (values: readonly number[]): number | null =>
  values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
