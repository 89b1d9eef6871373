import { brushes, patternOf } from "./painter";
import type { Theme } from "./theme";

/** What the drawing of every chart needs. Sizes in CSS pixels. */

export const FONT = "12px system-ui, sans-serif";

/** Sets the canvas's backing store to its size; returns a context whose unit is the CSS pixel. */
export function prepare(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  scale: number,
): CanvasRenderingContext2D | null {
  const w = Math.max(1, Math.round(width * scale));
  const h = Math.max(1, Math.round(height * scale));
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  const context = canvas.getContext("2d", { alpha: true });
  context?.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

const fills = new Map<string, CanvasPattern | string>();

/** A category's colour and texture as a fill of a canvas, as in the timeline and the legend. */
export function categoryFill(
  context: CanvasRenderingContext2D,
  category: string,
  theme: Theme,
): CanvasPattern | string {
  const key = `${category}|${theme.dark}`;
  let fill = fills.get(key);
  if (fill === undefined) {
    const [brush] = brushes([category], theme.dark);
    const period = 5;
    const pixels = patternOf(brush, period, 1);
    const tile = document.createElement("canvas");
    tile.width = period;
    tile.height = period;
    const inside = tile.getContext("2d");
    if (!inside) return theme.muted;
    const image = inside.createImageData(period, period);
    const target = new Uint32Array(image.data.buffer);
    for (let x = 0; x < period; x++) for (let y = 0; y < period; y++) target[y * period + x] = pixels[x * period + y];
    inside.putImageData(image, 0, 0);
    fill = context.createPattern(tile, "repeat") ?? theme.muted;
    fills.set(key, fill);
  }
  return fill;
}

/** A text cut so that it fits. */
export function fitText(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > room)
    length -= Math.max(1, length >> 3);
  return length > 1 ? `${text.slice(0, length)}…` : "";
}
