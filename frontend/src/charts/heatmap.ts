import { fitText } from "./canvas";
import type { Mark, Scene } from "./Plot";
import { scaleColor } from "./theme";

/** A table of numbers as colours: rows down, columns across. */

export interface HeatMap {
  rows: readonly string[];
  columns: readonly string[];
  /** `[row][column]`; null: nothing there (drawn as a dot). */
  values: readonly (readonly (number | null)[])[];
  /** The value of the lightest colour; the darkest is 0. */
  most: number;
  text: (row: number, column: number) => string;
  /** Rows with a mark in front. */
  marked?: ReadonlySet<number>;
}

export interface HeatMark extends Mark {
  row: number;
  column: number;
}

const BOTTOM = 22;
const MOST_CELLS = 40_000;

export const heatHeight = (rows: number): number => BOTTOM + Math.max(rows, 1) * rowPitch(rows);

const rowPitch = (rows: number): number => (rows <= 16 ? 26 : rows <= 64 ? 14 : rows <= 256 ? 5 : 2);

export function drawHeat(scene: Scene, map: HeatMap, left: number): HeatMark[] {
  const { context, width, height, theme } = scene;
  const pitchY = (height - BOTTOM) / Math.max(1, map.rows.length);
  const pitchX = (width - left) / Math.max(1, map.columns.length);
  const gap = pitchX > 6 && pitchY > 6 ? 1 : 0;
  const marks: HeatMark[] = [];
  let freeY = -1;
  for (const [r, name] of map.rows.entries()) {
    const y = r * pitchY;
    if (y + pitchY / 2 - 6 > freeY) {
      context.fillStyle = map.marked?.has(r) ? theme.accent : theme.text;
      context.fillText(`${map.marked?.has(r) ? "▸ " : ""}${fitText(context, name, left - 22)}`, 0, y + pitchY / 2);
      freeY = y + pitchY / 2 + 6;
    }
    for (let c = 0; c < map.columns.length; c++) {
      const value = map.values[r]?.[c] ?? null;
      const x = left + c * pitchX;
      if (value === null) {
        context.fillStyle = theme.line;
        context.fillRect(x + pitchX / 2 - 1, y + pitchY / 2 - 1, 2, 2);
      } else {
        context.fillStyle = scaleColor(map.most > 0 ? value / map.most : 0);
        context.fillRect(x, y, Math.max(pitchX - gap, 0.5), Math.max(pitchY - gap, 0.5));
      }
      if (marks.length < MOST_CELLS)
        marks.push({ x, y, width: pitchX - gap, height: pitchY - gap, text: map.text(r, c), row: r, column: c });
    }
  }
  context.fillStyle = theme.muted;
  context.textAlign = "center";
  let free = left - 4;
  for (const [c, name] of map.columns.entries()) {
    const x = left + (c + 0.5) * pitchX;
    const half = context.measureText(name).width / 2;
    if (x - half > free && x + half < width + 4) {
      context.fillText(name, x, height - BOTTOM / 2);
      free = x + half + 8;
    }
  }
  context.textAlign = "start";
  return marks;
}
