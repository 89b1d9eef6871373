import { fitText } from "../../charts/canvas";
import type { Scene } from "../../charts/Plot";
import { lineStyle } from "../../charts/theme";
import type { MatrixRow } from "./state";
import type { SessionMark } from "./trend";

const ROW = 24;
const BOTTOM = 22;

export const matrixHeight = (rows: number): number => rows * ROW + BOTTOM;

/** Findings down, sessions across: a diamond is critical, a triangle a warning, a dot information. */
export function drawMatrix(
  { context, width, theme }: Scene,
  rows: readonly MatrixRow[],
  labels: readonly string[],
  text: (row: MatrixRow, session: number) => string,
): SessionMark[] {
  const left = width < 560 ? 120 : 190;
  const pitch = (width - left - 8) / Math.max(1, labels.length);
  const size = Math.max(2, Math.min(7, pitch / 2 - 1));
  const marks: SessionMark[] = [];
  for (const [r, row] of rows.entries()) {
    const y = r * ROW + ROW / 2;
    context.fillStyle = theme.text;
    context.fillText(fitText(context, row.name, left - 12), 0, y);
    context.strokeStyle = theme.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(left, r * ROW + ROW + 0.5);
    context.lineTo(width, r * ROW + ROW + 0.5);
    context.stroke();
    for (const [i, severity] of row.severities.entries()) {
      const x = left + (i + 0.5) * pitch;
      marks.push({ x: x - pitch / 2, y: r * ROW, width: pitch, height: ROW, text: text(row, i), session: i });
      if (severity === null) continue;
      context.fillStyle =
        severity === "critical" ? theme.accent : severity === "warning" ? lineStyle(4, theme.dark).color : theme.focus;
      context.beginPath();
      if (severity === "critical") {
        context.moveTo(x, y - size);
        context.lineTo(x + size, y);
        context.lineTo(x, y + size);
        context.lineTo(x - size, y);
      } else if (severity === "warning") {
        context.moveTo(x, y - size);
        context.lineTo(x + size, y + size * 0.8);
        context.lineTo(x - size, y + size * 0.8);
      } else context.arc(x, y, size * 0.7, 0, 2 * Math.PI);
      context.fill();
    }
  }
  context.fillStyle = theme.muted;
  context.textAlign = "center";
  let free = left - 20;
  for (const [i, label] of labels.entries()) {
    const x = left + (i + 0.5) * pitch;
    const words = fitText(context, label, Math.max(80, pitch - 8));
    const half = context.measureText(words).width / 2;
    if (x - half <= free || x + half > width + 2) continue;
    context.fillText(words, x, rows.length * ROW + BOTTOM / 2);
    free = x + half + 8;
  }
  context.textAlign = "start";
  return marks;
}
