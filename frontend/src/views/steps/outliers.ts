/** Which steps stand out: the rule of the finding about slow steps (`diagnosis/thresholds.py`). */

export const OUTLIER_DEVIATIONS = 3.5;
export const OUTLIER_RATIO = 1.25;
export const FEWEST_STEPS = 8;

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** For each length whether it is an outlier among all; null is none. Too few of them have none. */
export function outliers(lengths: readonly (number | null)[]): boolean[] {
  const known = lengths.filter((length): length is number => length !== null);
  if (known.length < FEWEST_STEPS) return lengths.map(() => false);
  const middle = median(known);
  const scatter = 1.4826 * median(known.map((length) => Math.abs(length - middle)));
  const limit = Math.max(middle + OUTLIER_DEVIATIONS * scatter, middle * OUTLIER_RATIO);
  return lengths.map((length) => length !== null && length > limit);
}
