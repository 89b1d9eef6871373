import { NO_NAME } from "../api/binary";
import type { Step } from "../api/types";
import { shorten } from "../format";
import type { TimelineData } from "../state/timeline";
import { makeAxis } from "./axis";
import { FONT } from "./canvas";
import { upperBound } from "./columns";
import { type Brush, brushes, paintLane, pixelOf } from "./painter";
import { isWork, LANE_BACKGROUND } from "./palette";
import type { Theme } from "./theme";
import { length, type Range } from "./viewport";

/** Draws the two canvases of the timeline. Sizes in CSS pixels; `scale` device pixels each. */

const PS_PER_MS = 1e9;
export const AXIS_HEIGHT = 26;
export const STEPS_HEIGHT = 20;

export interface LaneLayout {
  height: number;
  pitch: number;
}

/** Height of a lane and distance between two, by how many there are. */
export function laneLayout(lanes: number): LaneLayout {
  if (lanes <= 8) return { height: 36, pitch: 44 };
  if (lanes <= 32) return { height: 22, pitch: 27 };
  return { height: 16, pitch: 20 };
}

/** Time axis and the bands of the steps. */
export function drawAxis(
  context: CanvasRenderingContext2D,
  view: Range,
  width: number,
  steps: readonly Step[],
  theme: Theme,
): void {
  context.clearRect(0, 0, width, AXIS_HEIGHT + STEPS_HEIGHT);
  context.font = FONT;
  context.textBaseline = "middle";
  const toX = (ps: number) => ((ps - view.start) / length(view)) * width;
  const axis = makeAxis(view.start / PS_PER_MS, view.end / PS_PER_MS, Math.max(2, width / 95));
  context.fillStyle = theme.muted;
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  let free = 0;
  if (axis.base) {
    context.fillText(axis.base, 2, 9);
    free = context.measureText(axis.base).width + 16;
  }
  context.beginPath();
  for (const [i, tick] of axis.ticks.entries()) {
    const x = Math.round(toX(tick.at * PS_PER_MS)) + 0.5;
    context.moveTo(x, AXIS_HEIGHT - 6);
    context.lineTo(x, AXIS_HEIGHT);
    if (axis.base && i === 0) continue;
    const half = context.measureText(tick.label).width / 2;
    const left = Math.min(Math.max(x - half, 0), width - 2 * half);
    if (left < free) continue;
    context.fillText(tick.label, left, 9);
    free = left + 2 * half + 10;
  }
  context.stroke();
  drawSteps(context, toX, width, steps, theme);
}

function drawSteps(
  context: CanvasRenderingContext2D,
  toX: (ps: number) => number,
  width: number,
  steps: readonly Step[],
  theme: Theme,
): void {
  const top = AXIS_HEIGHT;
  let filledTo = 0;
  context.textAlign = "center";
  for (const [i, step] of steps.entries()) {
    const left = Math.max(toX(step.start_ps), filledTo);
    const right = Math.min(toX(step.end_ps), width);
    // Steps below a pixel share one.
    if (right < 0 || left > width || right - filledTo < 1) continue;
    context.fillStyle = i % 2 ? theme.band : theme.line;
    context.globalAlpha = step.complete ? 1 : 0.45;
    context.fillRect(left, top + 2, Math.max(right - left - 1, 1), STEPS_HEIGHT - 5);
    context.globalAlpha = 1;
    const label = String(step.number);
    if (right - left > context.measureText(label).width + 6) {
      context.fillStyle = theme.text;
      context.fillText(label, (left + right) / 2, top + STEPS_HEIGHT / 2);
    }
    filledTo = right;
  }
  context.textAlign = "start";
}

export interface LaneScene {
  data: TimelineData;
  view: Range;
  width: number;
  height: number;
  scrollTop: number;
  layout: LaneLayout;
  scale: number;
  theme: Theme;
  window: Range | null;
  highlight: (Range & { lanes: ReadonlySet<number> }) | null;
  cursor: { lane: number; time: number } | null;
}

interface Buffers {
  image: ImageData | null;
  cover: Float32Array;
  brush: Brush[];
  key: string;
}

/** Kept between frames, so that a frame allocates nothing. */
export class LanePainter {
  private readonly buffers: Buffers = { image: null, cover: new Float32Array(0), brush: [], key: "" };

  draw(context: CanvasRenderingContext2D, scene: LaneScene): void {
    const { data, view, layout, scale, theme } = scene;
    const width = Math.max(1, Math.round(scene.width * scale));
    const height = Math.max(1, Math.round(scene.height * scale));
    const categories = data.meta.categories;
    const b = this.buffers;
    const key = `${theme.dark}|${categories.join()}`;
    if (b.key !== key) {
      b.brush = brushes(categories, theme.dark);
      b.key = key;
    }
    if (!b.image || b.image.width !== width || b.image.height !== height)
      b.image = context.createImageData(width, height);
    if (b.cover.length !== width * categories.length) b.cover = new Float32Array(width * categories.length);
    const pixels = new Uint32Array(b.image.data.buffer);
    pixels.fill(0);
    const background = pixelOf(LANE_BACKGROUND[theme.dark ? "dark" : "light"]);
    const first = Math.max(0, Math.floor(scene.scrollTop / layout.pitch));
    const last = Math.min(data.meta.lanes.length - 1, Math.floor((scene.scrollTop + scene.height) / layout.pitch));
    for (let lane = first; lane <= last; lane++) {
      const top = Math.round((lane * layout.pitch - scene.scrollTop) * scale);
      const bottom = Math.min(top + Math.round(layout.height * scale), height);
      if (top < 0 || bottom <= top) {
        // A lane cut by the scroll border: paint what is visible of it.
        if (bottom <= 0) continue;
      }
      const active = data.cover(lane, view, width, b.cover) ?? [];
      const from = Math.max(0, top);
      paintLane(
        pixels,
        width,
        from,
        bottom - from,
        width,
        b.cover,
        active,
        b.brush,
        background,
        Math.max(1, Math.round(scale)),
      );
    }
    context.putImageData(b.image, 0, 0);
    for (let lane = first; lane <= last; lane++) this.drawNames(context, scene, lane);
    this.drawOverlays(context, scene);
  }

  /** Borders and names of intervals that are wide enough for them. */
  private drawNames(context: CanvasRenderingContext2D, scene: LaneScene, index: number): void {
    const found = scene.data.lane(scene.view, index);
    if (!found) return;
    const { lane, names } = found;
    const { view, width, layout } = scene;
    const from = Math.max(0, upperBound(lane.start, view.start) - 1);
    const to = upperBound(lane.start, view.end);
    if (to - from > width / 3) return;
    const top = index * layout.pitch - scene.scrollTop;
    const toX = (ps: number) => ((ps - view.start) / length(view)) * width;
    context.font = FONT;
    context.textBaseline = "middle";
    for (let i = from; i < to; i++) {
      const left = Math.max(0, toX(lane.start[i]));
      const right = Math.min(width, toX(lane.end[i]));
      if (right - left < 4) continue;
      const work = isWork(scene.data.meta.categories[lane.category[i]]);
      if (work) {
        context.fillStyle = scene.theme.dark ? "#14171c" : "#ffffff";
        context.fillRect(right - 0.5, top, 1, layout.height);
      }
      if (!work || right - left < 44 || lane.name[i] === NO_NAME || layout.height < 18) continue;
      const text = shorten(names[lane.name[i]] ?? "", Math.floor((right - left - 8) / 6.6));
      context.fillStyle = textOn(scene.data.meta.categories[lane.category[i]], scene.theme.dark);
      context.fillText(text, left + 4, top + layout.height / 2, right - left - 8);
    }
  }

  private drawOverlays(context: CanvasRenderingContext2D, scene: LaneScene): void {
    const { view, width, height, theme, layout } = scene;
    const toX = (ps: number) => ((ps - view.start) / length(view)) * width;
    if (scene.window) {
      // Outside the analysed window nothing is counted: veil it.
      const left = Math.min(Math.max(toX(scene.window.start), 0), width);
      const right = Math.min(Math.max(toX(scene.window.end), 0), width);
      context.fillStyle = theme.dark ? "rgba(20,23,28,0.62)" : "rgba(255,255,255,0.66)";
      context.fillRect(0, 0, left, height);
      context.fillRect(right, 0, width - right, height);
      context.fillStyle = theme.muted;
      if (left > 0 && left < width) context.fillRect(left - 1, 0, 1, height);
      if (right > 0 && right < width) context.fillRect(right, 0, 1, height);
    }
    if (scene.highlight) {
      const left = toX(scene.highlight.start);
      const right = Math.max(toX(scene.highlight.end), left + 2);
      context.strokeStyle = theme.accent;
      context.lineWidth = 2;
      for (const lane of scene.highlight.lanes) {
        const top = lane * layout.pitch - scene.scrollTop;
        context.strokeRect(left, top - 1, right - left, layout.height + 2);
      }
    }
    if (scene.cursor) {
      const x = Math.round(toX(scene.cursor.time)) + 0.5;
      context.strokeStyle = theme.text;
      context.lineWidth = 1;
      context.globalAlpha = 0.55;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height);
      context.stroke();
      context.globalAlpha = 1;
    }
  }
}

/** Text colours with enough contrast on the solid colours of the palette. */
function textOn(category: string, dark: boolean): string {
  return !dark && category === "compute" ? "#ffffff" : "#10131a";
}
