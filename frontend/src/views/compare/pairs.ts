import { categoryFill, fitText } from "../../charts/canvas";
import type { Mark, Scene } from "../../charts/Plot";

/** Two stacked bars over one scale, their parts joined so that the eye follows what grew and what went. */

export interface PairPart {
  category: string;
  before: number;
  after: number;
  text: string;
}

const BAR = 34;
const GAP = 34;
export const PAIR_HEIGHT = 2 * BAR + GAP + 4;

export function drawPair(
  { context, width, theme }: Scene,
  names: readonly [string, string],
  totals: readonly [string, string],
  parts: readonly PairPart[],
): Mark[] {
  const left = width < 560 ? 64 : 110;
  const right = 74;
  const sum = (key: "before" | "after") => parts.reduce((all, part) => all + part[key], 0);
  const most = Math.max(sum("before"), sum("after"), 1e-12);
  const scale = (width - left - right) / most;
  const marks: Mark[] = [];
  let [x0, x1] = [left, left];
  const top = BAR + GAP;
  for (const part of parts) {
    const [w0, w1] = [part.before * scale, part.after * scale];
    context.fillStyle = categoryFill(context, part.category, theme);
    context.fillRect(x0, 0, w0, BAR);
    context.fillRect(x1, top, w1, BAR);
    if (Math.max(w0, w1) > 2) {
      context.globalAlpha = 0.28;
      context.beginPath();
      context.moveTo(x0, BAR);
      context.lineTo(x0 + w0, BAR);
      context.lineTo(x1 + w1, top);
      context.lineTo(x1, top);
      context.fill();
      context.globalAlpha = 1;
    }
    if (w0 > 0) marks.push({ x: x0, y: 0, width: w0, height: BAR, text: part.text });
    if (w1 > 0) marks.push({ x: x1, y: top, width: w1, height: BAR, text: part.text });
    x0 += w0;
    x1 += w1;
  }
  context.fillStyle = theme.text;
  for (const [i, x] of [x0, x1].entries()) {
    const y = i * top + BAR / 2;
    context.fillText(fitText(context, names[i], left - 8), 0, y);
    context.fillText(totals[i], x + 6, y);
  }
  return marks;
}
