import { stackColumn } from "./columns";
import { channels, GROUND, LANE_BACKGROUND, mix, paintOf, type Texture } from "./palette";

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

function marked(texture: Texture, x: number, y: number, scale: number): boolean {
  switch (texture) {
    case "solid":
      return true;
    case "forward":
      return (x + y) % (PERIOD * scale) < STRONG * scale;
    case "backward":
      return (((x - y) % (PERIOD * scale)) + PERIOD * scale) % (PERIOD * scale) < STRONG * scale;
    case "dots":
      return x % (PERIOD * scale) < STRONG * scale && y % (PERIOD * scale) < STRONG * scale;
  }
}

/**
 * Paints one lane into `pixels` (rows of `stride`), from row `top`, `height` rows high.
 * `cover[c * width + x]` is the share of category c in pixel x; work lies at the bottom.
 */
export function paintLane(
  pixels: Uint32Array,
  stride: number,
  top: number,
  height: number,
  width: number,
  cover: Float32Array,
  brush: readonly Brush[],
  background: number,
  scale: number,
): void {
  const rows = new Uint16Array(brush.length);
  for (let x = 0; x < width; x++) {
    stackColumn(cover, x, width, brush.length, height, rows);
    let y = top + height - 1;
    for (let c = 0; c < brush.length; c++) {
      const { strong, ground, texture } = brush[c];
      const until = Math.max(y - rows[c], top - 1);
      if (texture === "solid") for (; y > until; y--) pixels[y * stride + x] = strong;
      else for (; y > until; y--) pixels[y * stride + x] = marked(texture, x, y, scale) ? strong : ground;
    }
    for (; y >= top; y--) pixels[y * stride + x] = background;
  }
}
