import { formatNumber } from "../format";
import { niceStep } from "./axis";
import { fitText } from "./canvas";
import type { Mark, Scene } from "./Plot";
import { lineStyle } from "./theme";
import { dateOf, dateTicks, momentOf } from "./timeAxis";

/** Lines over time or over steps, with stretches shaded behind them and upright marks. */

export interface Line {
  label: string;
  /** One value a time; null: the line breaks there; undefined: it has none there and goes on. */
  values: readonly (number | null | undefined)[];
  /** Which colour and dash it gets: the same line has the same in every chart. */
  style: number;
}

/** A stretch behind the lines. */
export interface Band {
  start: number;
  end: number;
  /** A CSS colour, better half transparent. */
  color: string;
  label: string;
}

export interface SeriesOptions {
  /** The axis: `unix` are seconds since 1970, anything else are plain numbers with that unit. */
  time: "unix" | string;
  unit: string;
  lines: readonly Line[];
  /** Increasing. */
  times: readonly number[];
  bands?: readonly Band[];
  /** Upright lines, such as where profiles were taken. */
  marks?: readonly { at: number; label: string }[];
  /** Lowest and highest value shown; null: as the data has it. */
  range?: readonly [number | null, number | null];
  /** The stretch that is shown; null: all. */
  zoom?: { start: number; end: number } | null;
}

export const SERIES_LEFT = 64;
export const SERIES_RIGHT = 12;
const BOTTOM = 34;
const TOP = 18;
const LEGEND_ROW = 18;
const MOST_MARKS = 300;
const SWATCH = 22;

/** From the first to the last value of the axis. */
export function seriesExtent({ times, zoom }: Pick<SeriesOptions, "times" | "zoom">): [number, number] {
  const [from, to] = zoom ? [zoom.start, zoom.end] : [times[0] ?? 0, times[times.length - 1] ?? 1];
  return to > from ? [from, to] : [from - 0.5, from + 0.5];
}

/** What of the axis stands at a pixel of a chart of that width. */
export function valueAtPixel(x: number, width: number, [from, to]: readonly [number, number]): number {
  const share = (x - SERIES_LEFT) / Math.max(width - SERIES_RIGHT - SERIES_LEFT, 1);
  return from + Math.min(Math.max(share, 0), 1) * (to - from);
}

/** The names of the lines in rows that fit into a width. */
export function legendRows(lines: readonly Line[], room: number, measure: (text: string) => number): Line[][] {
  const rows: Line[][] = [];
  let left = 0;
  for (const line of lines) {
    const size = SWATCH + Math.min(measure(line.label), room - SWATCH) + 18;
    if (!rows.length || left + size > room + 18) {
      rows.push([]);
      left = 0;
    }
    rows[rows.length - 1].push(line);
    left += size;
  }
  return rows;
}

/** How high a chart gets whose plot alone has that height. */
export const seriesHeight = (plot: number, rows: number): number => plot + rows * LEGEND_ROW;

/** The first index whose time is not before a value. */
function firstFrom(times: readonly number[], value: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What a line's value is at a time: its own, or the last one before without a break between. */
export function valueAt(values: Line["values"], index: number): number | null {
  for (let i = index; i >= 0; i--) {
    const value = values[i];
    if (value === null) return null;
    if (value !== undefined) return value;
  }
  return null;
}

function highest(options: SeriesOptions, first: number, last: number): number {
  let most = 0;
  for (const { values } of options.lines) {
    for (let i = first; i < last; i++) {
      const value = values[i];
      if (typeof value === "number" && value > most) most = value;
    }
  }
  return most;
}

export function drawSeries(scene: Scene, options: SeriesOptions): Mark[] {
  const { context, width, height, theme } = scene;
  const { lines, times, unit } = options;
  const legend =
    lines.length > 1 ? legendRows(lines, width - SERIES_LEFT, (text) => context.measureText(text).width) : [];
  const bottom = height - BOTTOM - legend.length * LEGEND_ROW;
  const right = width - SERIES_RIGHT;
  const [from, to] = seriesExtent(options);
  const first = Math.max(0, firstFrom(times, from) - 1);
  const last = Math.min(times.length, firstFrom(times, to) + 1);
  const low = options.range?.[0] ?? 0;
  const top = options.range?.[1] ?? Math.max(highest(options, first, last) * 1.06, low + 1e-9);
  const toX = (value: number) => SERIES_LEFT + ((value - from) / (to - from)) * (right - SERIES_LEFT);
  const toY = (value: number) => bottom - ((value - low) / (top - low)) * (bottom - TOP);

  context.save();
  context.beginPath();
  context.rect(SERIES_LEFT, TOP, right - SERIES_LEFT, bottom - TOP);
  context.clip();
  for (const band of options.bands ?? []) {
    const left = toX(band.start);
    context.fillStyle = band.color;
    context.fillRect(left, TOP, Math.max(toX(band.end) - left, 2), bottom - TOP);
  }
  context.restore();

  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.lineWidth = 1;
  context.beginPath();
  context.textAlign = "end";
  const step = niceStep(top - low, Math.max(2, (bottom - TOP) / 36));
  // Plus 0: no tick is labelled -0.
  for (let i = Math.ceil(low / step - 1e-9) + 0; i * step <= top * (1 + 1e-9); i++) {
    const y = Math.round(toY(i * step)) + 0.5;
    context.moveTo(SERIES_LEFT, y);
    context.lineTo(right, y);
    context.fillText(formatNumber(i * step, 4), SERIES_LEFT - 8, y);
  }
  context.textAlign = "start";
  context.fillText(unit, 0, 8);
  context.textAlign = "center";
  const wanted = Math.max(2, (right - SERIES_LEFT) / 100);
  const dates = options.time === "unix";
  const ticks = dates
    ? dateTicks(from * 1000, to * 1000, wanted).map(({ at, label }) => ({ at: at / 1000, label }))
    : numberTicks(from, to, wanted, options.time);
  for (const { at, label } of ticks) {
    const x = Math.round(toX(at)) + 0.5;
    context.moveTo(x, TOP);
    context.lineTo(x, bottom + 3);
    context.fillText(label, Math.min(x, width - context.measureText(label).width / 2), bottom + 11);
  }
  context.stroke();
  context.textAlign = "start";
  if (dates) context.fillText(dateOf(from * 1000), SERIES_LEFT, bottom + 26);

  context.save();
  context.beginPath();
  context.rect(SERIES_LEFT, TOP - 2, right - SERIES_LEFT, bottom - TOP + 4);
  context.clip();
  context.lineJoin = "round";
  for (const line of lines) {
    const { color, dash } = lineStyle(line.style, theme.dark);
    context.strokeStyle = color;
    context.fillStyle = color;
    context.lineWidth = 1.75;
    context.setLineDash(dash);
    context.beginPath();
    let pen = 0;
    let [px, py] = [0, 0];
    for (let i = first; i < last; i++) {
      const value = line.values[i];
      if (value === undefined) continue;
      if (value === null) {
        // A single value between two pauses is a dot.
        if (pen === 1) context.fillRect(px - 2, py - 2, 4, 4);
        pen = 0;
        continue;
      }
      [px, py] = [toX(times[i]), toY(value)];
      if (pen) context.lineTo(px, py);
      else context.moveTo(px, py);
      pen += 1;
    }
    context.stroke();
    if (pen === 1) context.fillRect(px - 2, py - 2, 4, 4);
  }
  context.setLineDash([]);
  context.strokeStyle = theme.focus;
  context.lineWidth = 2;
  for (const mark of options.marks ?? []) {
    context.beginPath();
    context.moveTo(toX(mark.at), TOP);
    context.lineTo(toX(mark.at), bottom);
    context.stroke();
  }
  context.restore();

  for (const [i, row] of legend.entries()) {
    const y = bottom + BOTTOM + i * LEGEND_ROW + LEGEND_ROW / 2;
    let x = SERIES_LEFT;
    for (const line of row) {
      const { color, dash } = lineStyle(line.style, theme.dark);
      context.strokeStyle = color;
      context.lineWidth = 2.5;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + SWATCH - 6, y);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = theme.text;
      const label = fitText(context, line.label, width - SERIES_LEFT - SWATCH);
      context.fillText(label, x + SWATCH, y);
      x += SWATCH + context.measureText(label).width + 18;
    }
  }
  return strips(options, toX, first, last, [TOP, bottom], [SERIES_LEFT, right]);
}

function numberTicks(from: number, to: number, wanted: number, unit: string): { at: number; label: string }[] {
  const step = niceStep(to - from, wanted);
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9) + 0; i * step <= to; i++) {
    ticks.push({ at: i * step, label: `${formatNumber(i * step, 6)}${unit ? ` ${unit}` : ""}` });
    if (ticks.length > 200) break;
  }
  return ticks;
}

/** Upright strips that tell the values at their times: for the pointer and the arrow keys. */
function strips(
  options: SeriesOptions,
  toX: (value: number) => number,
  first: number,
  last: number,
  [top, bottom]: readonly [number, number],
  [left, right]: readonly [number, number],
): Mark[] {
  const { times, lines, unit } = options;
  const inside: number[] = [];
  for (let i = first; i < last; i++) {
    const x = toX(times[i]);
    if (x >= left - 0.5 && x <= right + 0.5) inside.push(i);
  }
  const each = Math.max(1, Math.ceil(inside.length / MOST_MARKS));
  const shown = inside.filter((_, i) => i % each === 0);
  const xs = shown.map((i) => toX(times[i]));
  return shown.map((index, i) => {
    const from = i ? (xs[i - 1] + xs[i]) / 2 : left;
    const to = i + 1 < xs.length ? (xs[i] + xs[i + 1]) / 2 : right;
    const at = times[index];
    const head = options.time === "unix" ? momentOf(at * 1000) : `${formatNumber(at, 6)} ${options.time}`.trim();
    const values = lines.map(({ label, values: own }) => {
      const value = valueAt(own, index);
      return `${label}: ${value === null ? "–" : `${formatNumber(value, 4)} ${unit}`}`;
    });
    const behind = (options.bands ?? [])
      .filter(({ start, end }) => at >= start && at <= end)
      .slice(0, 4)
      .map(({ label }) => label.split("\n").slice(0, 2).join(": "));
    return { x: from, y: top, width: to - from, height: bottom - top, text: [head, ...values, ...behind].join("\n") };
  });
}
