import { formatPercent } from "../format";
import { categoryFill, fitText } from "./canvas";
import type { Mark, Scene } from "./Plot";

/** Lying bars that are divided into shares, one a row: how a GPU's time divides. */

export interface SharePart {
  category: string;
  /** In whatever unit all parts of all rows have. */
  value: number;
}

export interface ShareRow {
  label: string;
  parts: readonly SharePart[];
  /** What the whole bar stands for. */
  whole: number;
  text: string;
}

export interface ShareMark extends Mark {
  row: number;
}

const ROW = 30;
const BAR = 24;
const WORDS = 46;

export const sharesHeight = (rows: number): number => Math.max(1, rows) * ROW;

export function drawShares({ context, width, theme }: Scene, rows: readonly ShareRow[], left: number): ShareMark[] {
  const marks: ShareMark[] = [];
  for (const [i, row] of rows.entries()) {
    const y = i * ROW;
    context.fillStyle = theme.text;
    context.fillText(fitText(context, row.label, left - 10), 0, y + BAR / 2);
    context.fillStyle = theme.band;
    context.fillRect(left, y, width - left, BAR);
    let x = left;
    for (const { category, value } of row.parts) {
      const size = row.whole > 0 ? (value / row.whole) * (width - left) : 0;
      if (!(size > 0)) continue;
      context.fillStyle = categoryFill(context, category, theme);
      context.fillRect(x, y, size, BAR);
      if (size > WORDS) {
        const words = formatPercent(value / row.whole);
        context.fillStyle = theme.surface;
        context.fillRect(x + 4, y + 4, context.measureText(words).width + 10, BAR - 8);
        context.fillStyle = theme.text;
        context.fillText(words, x + 9, y + BAR / 2);
      }
      x += size;
    }
    marks.push({ x: left, y, width: width - left, height: BAR, text: row.text, row: i });
  }
  return marks;
}
