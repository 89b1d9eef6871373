import { shownProfile } from "../state/resource";
import { fileName, saveBlob } from "../ui/export";
import { FONT } from "./canvas";
import type { Theme } from "./theme";

const HEAD = 34;
const LEGEND = 22;
const MARGIN = 12;
const SCALE = 2;

export interface Picture {
  /** Part of the file's name. */
  name: string;
  title: string;
  width: number;
  height: number;
  theme: Theme;
  draw: (scene: { context: CanvasRenderingContext2D; width: number; height: number; theme: Theme }) => unknown;
  /** Entries under the picture: a fill and its meaning. */
  legend?: readonly { fill: (context: CanvasRenderingContext2D) => CanvasPattern | string; label: string }[];
  legendText?: string;
}

/** Draws a picture with its heading and key, and has the browser save it. */
export function savePng(picture: Picture): void {
  const { theme, width, height } = picture;
  const canvas = document.createElement("canvas");
  const full = HEAD + height + (picture.legend?.length || picture.legendText ? LEGEND : 0) + MARGIN;
  canvas.width = (width + 2 * MARGIN) * SCALE;
  canvas.height = full * SCALE;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.setTransform(SCALE, 0, 0, SCALE, 0, 0);
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, width + 2 * MARGIN, full);
  context.translate(MARGIN, 0);
  context.textBaseline = "middle";
  context.fillStyle = theme.text;
  context.font = `600 14px ${FONT.slice(FONT.indexOf(" ") + 1)}`;
  context.fillText(picture.title, 0, HEAD / 2, width);
  context.font = FONT;
  const under = HEAD + height + LEGEND / 2;
  let x = 0;
  for (const { fill, label } of picture.legend ?? []) {
    context.fillStyle = fill(context);
    context.fillRect(x, under - 5, 16, 11);
    context.fillStyle = theme.text;
    context.fillText(label, x + 21, under);
    x += 21 + context.measureText(label).width + 16;
  }
  if (picture.legendText) {
    context.fillStyle = theme.muted;
    context.fillText(picture.legendText, x, under, width);
  }
  context.translate(0, HEAD);
  picture.draw({ context, width, height, theme });
  const profile = shownProfile.peek();
  const name = fileName([profile?.run, profile?.session, picture.name], "png");
  canvas.toBlob((blob) => blob && saveBlob(blob, name), "image/png");
}
