import { formatMeasured, formatPercent, UNKNOWN } from "../../format";

const signed = (value: number, words: string): string => (value > 0 ? `+${words}` : value < 0 ? `−${words}` : words);

/** A relative change with its sign: −34%. */
export function formatChange(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return UNKNOWN;
  return signed(Math.abs(share) < 0.0005 ? 0 : share, formatPercent(Math.abs(share) < 0.0005 ? 0 : Math.abs(share)));
}

/** A difference of times with its sign. */
export function formatMoved(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return UNKNOWN;
  return signed(ms, formatMeasured(Math.abs(ms)));
}
