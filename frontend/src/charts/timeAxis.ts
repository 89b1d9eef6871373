import { lang } from "../i18n";

/** Ticks of an axis of dates, in the browser's zone. */

const S = 1000;
const MIN = 60 * S;
const H = 60 * MIN;
const DAY = 24 * H;
const STEPS = [
  1,
  2,
  5,
  10,
  20,
  50,
  100,
  200,
  500,
  ...[1, 2, 5, 10, 15, 30].map((n) => n * S),
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MIN),
  ...[1, 2, 3, 6, 12].map((n) => n * H),
  ...[1, 2, 7, 14, 30, 90, 365].map((n) => n * DAY),
];

export interface DateTick {
  /** Milliseconds since 1970. */
  at: number;
  label: string;
}

const formats = new Map<string, Intl.DateTimeFormat>();

function format(options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${lang.value}|${JSON.stringify(options)}`;
  const found = formats.get(key) ?? new Intl.DateTimeFormat(lang.value, options);
  formats.set(key, found);
  return found;
}

/** The distance of ticks that puts about `wanted` of them into a length of `ms`. */
export const dateStep = (ms: number, wanted: number): number =>
  STEPS.find((step) => ms / step <= wanted) ?? Math.ceil(ms / wanted / (365 * DAY)) * 365 * DAY;

/** Ticks at round times of the day within [start, end], at most `wanted` or so. */
export function dateTicks(startMs: number, endMs: number, wanted: number): DateTick[] {
  const step = dateStep(endMs - startMs, Math.max(1, wanted));
  // Round in the local day: counted from its midnight.
  const midnight = new Date(startMs);
  midnight.setHours(0, 0, 0, 0);
  const base = midnight.getTime();
  const time: Intl.DateTimeFormatOptions = {
    hour: "2-digit",
    minute: "2-digit",
    ...(step < MIN ? { second: "2-digit" } : {}),
    ...(step < S ? { fractionalSecondDigits: 3 } : {}),
    hourCycle: "h23",
  };
  const day: Intl.DateTimeFormatOptions = { month: "short", day: "numeric" };
  const ticks: DateTick[] = [];
  for (let i = Math.ceil((startMs - base) / step); base + i * step <= endMs && ticks.length < 200; i++) {
    const at = base + i * step;
    ticks.push({ at, label: format(step >= DAY ? day : time).format(new Date(at)) });
  }
  return ticks;
}

/** The date of a moment, for the start of an axis whose ticks hold only the time of the day. */
export const dateOf = (unixMs: number): string => format({ dateStyle: "medium" }).format(new Date(unixMs));

/** The time of the day. */
export const timeOf = (unixMs: number): string => format({ timeStyle: "medium" }).format(new Date(unixMs));

export const momentOf = (unixMs: number): string =>
  format({ dateStyle: "medium", timeStyle: "medium" }).format(new Date(unixMs));
