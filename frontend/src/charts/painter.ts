import { stackColumn } from "./columns";
import type { Texture } from "./paint";
import { channels, GROUND, LANE_BACKGROUND, mix, paintOf } from "./palette";

/** Writes pixel columns into an image buffer: no canvas call per interval. */

export interface Brush {
  strong: number;
  ground: number;
  texture: Texture;
}

const LITTLE_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

/** A colour as one 32-bit pixel of an ImageData buffer. */
export function pixelOf(color: string): number {
  const [r, g, b] = channels(color);
  return (LITTLE_ENDIAN ? (255 << 24) | (b << 16) | (g << 8) | r : (r << 24) | (g << 16) | (b << 8) | 255) >>> 0;
}

export function brushes(categories: readonly string[], dark: boolean): Brush[] {
  const background = LANE_BACKGROUND[dark ? "dark" : "light"];
  return categories.map((category) => {
    const { color, texture } = paintOf(category, dark);
    return { strong: pixelOf(color), ground: pixelOf(mix(color, background, GROUND)), texture };
  });
}

const PERIOD = 5;
const STRONG = 2;

function marked(texture: Texture, x: number, y: number, period: number, strong: number): boolean {
  switch (texture) {
    case "solid":
      return true;
    case "forward":
      return (x + y) % period < strong;
    case "backward":
      return (x - y + period) % period < strong;
    case "dots":
      return x < strong && y < strong;
  }
}

const patterns = new Map<string, Uint32Array>();

/** One period of a brush as pixels, column by column: `[x * period + y]`. */
export function patternOf(brush: Brush, period: number, scale: number): Uint32Array {
  const key = `${brush.texture}|${brush.strong}|${brush.ground}|${scale}`;
  let pattern = patterns.get(key);
  if (!pattern) {
    pattern = new Uint32Array(period * period);
    for (let x = 0; x < period; x++) {
      for (let y = 0; y < period; y++) {
        const on = marked(brush.texture, x, y, period, STRONG * scale);
        pattern[x * period + y] = on ? brush.strong : brush.ground;
      }
    }
    patterns.set(key, pattern);
  }
  return pattern;
}

/**
 * Paints one lane into `pixels` (rows of `stride`), from row `top`, `height` rows high.
 * `cover[c * width + x]` is the share of category c in pixel x, for the categories `active`;
 * work lies at the bottom.
 */
export function paintLane(
  pixels: Uint32Array,
  stride: number,
  top: number,
  height: number,
  width: number,
  cover: Float32Array,
  active: readonly number[],
  brush: readonly Brush[],
  background: number,
  scale: number,
): void {
  const period = PERIOD * scale;
  const rows = new Uint16Array(active.length);
  const pattern = active.map((c) => patternOf(brush[c], period, scale));
  const bottom = top + height - 1;
  for (let x = 0; x < width; x++) {
    stackColumn(cover, x, width, active, height, rows);
    const column = (x % period) * period;
    let y = bottom;
    for (let i = 0; i < active.length; i++) {
      const until = Math.max(y - rows[i], top - 1);
      const source = pattern[i];
      for (let phase = y % period; y > until; y--) {
        pixels[y * stride + x] = source[column + phase];
        phase = phase === 0 ? period - 1 : phase - 1;
      }
    }
    for (; y >= top; y--) pixels[y * stride + x] = background;
  }
}
