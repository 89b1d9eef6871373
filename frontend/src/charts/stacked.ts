import { formatNumber } from "../format";
import { makeAxis, niceStep } from "./axis";
import { categoryFill, fitText } from "./canvas";
import type { Mark, Scene } from "./Plot";

/** Stacked bars over a shared axis of time, upright: one bar a column, its parts from the bottom up. */

export interface StackPart {
  category: string;
  /** Milliseconds, or a count. */
  value: number;
}

export interface StackColumn {
  label: string;
  parts: readonly StackPart[];
  /** Drawn with a mark above: an outlier. */
  marked?: boolean;
  /** The tooltip; what a screen reader hears. */
  text: string;
}

export interface StackMark extends Mark {
  column: number;
}

const LEFT = 64;
const BOTTOM = 22;
const TOP = 14;

/** What the heights are. */
export type StackUnit = "ms" | "count";

function ticksOf(full: number, unit: StackUnit, wanted: number): { at: number; label: string }[] {
  if (unit === "ms") return makeAxis(0, full, wanted).ticks;
  const step = Math.max(1, niceStep(full, wanted));
  return Array.from({ length: Math.floor(full / step) + 1 }, (_, i) => ({
    at: i * step,
    label: formatNumber(i * step),
  }));
}

/** The largest sum, so that several charts can share a scale. */
export const tallestColumn = (columns: readonly StackColumn[]): number =>
  columns.reduce(
    (most, { parts }) =>
      Math.max(
        most,
        parts.reduce((sum, part) => sum + part.value, 0),
      ),
    0,
  );

export function drawStack(
  scene: Scene,
  columns: readonly StackColumn[],
  most: number,
  unit: StackUnit = "ms",
): StackMark[] {
  const { context, width, height, theme } = scene;
  const top = TOP;
  const bottom = height - BOTTOM;
  const plot = width - LEFT;
  const full = most > 0 ? most * 1.02 : 1;
  const toY = (value: number) => bottom - (value / full) * (bottom - top);
  context.textAlign = "end";
  context.lineWidth = 1;
  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.beginPath();
  for (const tick of ticksOf(full, unit, Math.max(2, (bottom - top) / 36))) {
    const y = Math.round(toY(tick.at)) + 0.5;
    context.moveTo(LEFT - 4, y);
    context.lineTo(width, y);
    context.fillText(tick.label, LEFT - 8, y);
  }
  context.stroke();
  const pitch = plot / Math.max(1, columns.length);
  const thick = Math.max(pitch > 6 ? Math.min(pitch - 2, 64) : pitch * 0.92, 0.5);
  const marks: StackMark[] = [];
  context.textAlign = "center";
  let free = -1;
  for (const [i, column] of columns.entries()) {
    const x = LEFT + i * pitch + (pitch - thick) / 2;
    let sum = 0;
    for (const part of column.parts) {
      const from = toY(sum);
      sum += part.value;
      const to = toY(sum);
      context.fillStyle = categoryFill(context, part.category, theme);
      context.fillRect(x, to, thick, from - to);
    }
    if (column.marked) {
      context.fillStyle = theme.accent;
      context.beginPath();
      context.moveTo(x + thick / 2 - 5, toY(sum) - 11);
      context.lineTo(x + thick / 2 + 5, toY(sum) - 11);
      context.lineTo(x + thick / 2, toY(sum) - 3);
      context.fill();
    }
    context.fillStyle = theme.muted;
    const label = fitText(context, column.label, Math.max(80, pitch - 10));
    const half = context.measureText(label).width / 2;
    if (x + thick / 2 - half > free) {
      context.fillText(label, x + thick / 2, bottom + BOTTOM / 2);
      free = x + thick / 2 + half + 8;
    }
    marks.push({ x: LEFT + i * pitch, y: top, width: pitch, height: bottom - top, text: column.text, column: i });
  }
  context.textAlign = "start";
  return marks;
}
