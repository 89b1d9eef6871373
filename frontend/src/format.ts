import { lang } from "./i18n";

/** Numbers as text in the language of the page. Unknown values (null, NaN) are a dash. */

export const UNKNOWN = "–";

const formats = new Map<string, Intl.NumberFormat>();

function numberFormat(options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = `${lang.value}|${JSON.stringify(options)}`;
  let format = formats.get(key);
  if (!format) {
    format = new Intl.NumberFormat(lang.value, { ...options, useGrouping: "min2" } as Intl.NumberFormatOptions);
    formats.set(key, format);
  }
  return format;
}

type Maybe = number | null | undefined;

const known = (value: Maybe): value is number => typeof value === "number" && Number.isFinite(value);

export function formatInt(value: Maybe): string {
  return known(value) ? numberFormat({ maximumFractionDigits: 0 }).format(value) : UNKNOWN;
}

/** About three significant digits. */
export function formatNumber(value: Maybe, digits = 3): string {
  if (!known(value)) return UNKNOWN;
  const magnitude = value === 0 ? 1 : Math.floor(Math.log10(Math.abs(value))) + 1;
  return numberFormat({ maximumFractionDigits: Math.max(0, Math.min(12, digits - magnitude)) }).format(value);
}

const percent = (share: number, digits: number): string =>
  numberFormat({ style: "percent", minimumFractionDigits: digits, maximumFractionDigits: digits }).format(share);

/** A share of one as percent; what is tiny is never shown as nothing, nor what is almost all as all. */
export function formatPercent(share: Maybe): string {
  if (!known(share)) return UNKNOWN;
  if (share > 0 && share < 0.0005) return `<${percent(0.001, 1)}`;
  if (share > 0.99 && share < 1) return percent(Math.min(share, 0.999), 1);
  return percent(share, share !== 0 && Math.abs(share) < 0.0995 ? 1 : 0);
}

const TIME_UNITS: readonly [string, number][] = [
  ["s", 1000],
  ["ms", 1],
  ["µs", 1e-3],
  ["ns", 1e-6],
  ["ps", 1e-9],
];

/** The unit in which a duration reads best, and its length in ms. */
export function timeUnit(ms: number): readonly [string, number] {
  const size = Math.abs(ms);
  return TIME_UNITS.find(([, length]) => size >= length * 0.9995) ?? (size === 0 ? TIME_UNITS[1] : TIME_UNITS[4]);
}

/** A duration with its best unit. */
export function formatDuration(ms: Maybe, digits = 3): string {
  if (!known(ms)) return UNKNOWN;
  const [unit, length] = timeUnit(ms);
  return `${formatNumber(ms / length, digits)} ${unit}`;
}

/** The same with exactly three digits, so that the numbers of a column line up: 8.90 ms, 24.7 ms. */
export function formatMeasured(ms: Maybe): string {
  if (!known(ms)) return UNKNOWN;
  const [unit, length] = timeUnit(ms);
  const value = ms / length;
  const digits = value === 0 ? 0 : Math.max(0, Math.min(2, 2 - Math.floor(Math.log10(Math.abs(value) * 1.0005))));
  return `${numberFormat({ minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value)} ${unit}`;
}

/** A range in one unit, with as many decimals as it takes to tell its ends apart. */
export function formatRange(startMs: number, endMs: number): string {
  const [unit, size] = timeUnit(Math.max(Math.abs(endMs), Math.abs(startMs)));
  const span = Math.max(endMs - startMs, 1e-9) / size;
  const decimals = Math.min(12, Math.max(0, 4 - Math.ceil(Math.log10(span))));
  const format = numberFormat({ maximumFractionDigits: decimals });
  // What rounds to nothing is 0, not -0.
  const show = (ms: number) => format.format(Math.abs(ms / size) < 0.5 * 10 ** -decimals ? 0 : ms / size);
  return `${show(startMs)}–${show(endMs)} ${unit}`;
}

export function formatBytes(bytes: Maybe): string {
  if (!known(bytes)) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${formatNumber(value)} ${units[unit]}`;
}

export function formatDate(unixSeconds: Maybe): string {
  if (!known(unixSeconds)) return UNKNOWN;
  return new Intl.DateTimeFormat(lang.value, { dateStyle: "medium", timeStyle: "short" }).format(
    new Date(unixSeconds * 1000),
  );
}

/** Hostile names are long: cut in the middle, since kernel names differ at both ends. */
export function shorten(text: string, length = 60): string {
  const clean = cleanText(text);
  if (clean.length <= length) return clean;
  const head = Math.ceil((length - 1) / 2);
  return `${clean.slice(0, head)}…${clean.slice(clean.length - (length - 1 - head))}`;
}

const LONGEST_TITLE = 2000;

/** A full name for a tooltip: bounded, since names of 100 KB exist. */
export function fullText(text: string): string {
  const clean = cleanText(text.slice(0, LONGEST_TITLE + 1));
  return clean.length > LONGEST_TITLE ? `${clean.slice(0, LONGEST_TITLE)}…` : clean;
}

const DISGUISES = /(?!\n)[\p{Cc}\p{Bidi_Control}]/gu;

/** Control and direction-changing characters as the replacement sign: they could disguise a name. */
export function cleanText(text: string): string {
  return text.replace(DISGUISES, "\ufffd");
}
