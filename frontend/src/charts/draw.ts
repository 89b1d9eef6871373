import { NO_NAME } from "../api/binary";
import type { Step } from "../api/types";
import { shorten } from "../format";
import type { TimelineData } from "../state/timeline";
import { makeAxis } from "./axis";
import { FONT } from "./canvas";
import { upperBound } from "./columns";
import { type Brush, brushes, paintLane, pixelOf } from "./painter";
import { isWork, LANE_BACKGROUND, paintOf } from "./palette";
import { type Row, rowOfLane, rowsBetween } from "./rows";
import type { Theme } from "./theme";
import { length, type Range } from "./viewport";

/** Draws the two canvases of the timeline. Sizes in CSS pixels; `scale` device pixels each. */

const PS_PER_MS = 1e9;
export const AXIS_HEIGHT = 26;
export const STEPS_HEIGHT = 20;

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

/** A stretch of a stream of a GPU, in the order of the events. */
export interface StreamEvents {
  start: readonly number[];
  end: readonly number[];
  category: readonly string[];
  name: readonly string[];
}

export interface LaneScene {
  data: TimelineData;
  view: Range;
  width: number;
  height: number;
  scrollTop: number;
  rows: readonly Row[];
  scale: number;
  theme: Theme;
  window: Range | null;
  highlight: (Range & { lanes: ReadonlySet<number> }) | null;
  selection: Range | null;
  hits: readonly (Range & { lane: number })[];
  cursor: { row: number; time: number } | null;
  streamEvents: (row: Row) => StreamEvents | null;
}

interface Buffers {
  image: ImageData | null;
  cover: Float32Array;
  scratch: Float32Array;
  brush: Brush[];
  key: string;
}

/** Kept between frames, so that a frame allocates nothing. */
export class LanePainter {
  private readonly buffers: Buffers = {
    image: null,
    cover: new Float32Array(0),
    scratch: new Float32Array(0),
    brush: [],
    key: "",
  };

  draw(context: CanvasRenderingContext2D, scene: LaneScene): void {
    const { data, view, rows, scale, theme } = scene;
    const width = Math.max(1, Math.round(scene.width * scale));
    const height = Math.max(1, Math.round(scene.height * scale));
    const { categories } = data;
    const b = this.buffers;
    const key = `${categories.join()}|${theme.dark}`;
    if (b.key !== key) {
      b.brush = brushes(categories, theme.dark);
      b.key = key;
    }
    if (!b.image || b.image.width !== width || b.image.height !== height)
      b.image = context.createImageData(width, height);
    if (b.cover.length !== width * categories.length) {
      b.cover = new Float32Array(width * categories.length);
      b.scratch = new Float32Array(width * categories.length);
    }
    const pixels = new Uint32Array(b.image.data.buffer);
    pixels.fill(0);
    const background = pixelOf(LANE_BACKGROUND[theme.dark ? "dark" : "light"]);
    const [first, last] = rowsBetween(rows, scene.scrollTop, scene.scrollTop + scene.height);
    for (const row of rows.slice(first, last)) {
      if (row.kind === "stream" || !row.lanes.length) continue;
      const top = Math.round((row.top - scene.scrollTop) * scale);
      const bottom = Math.min(top + Math.round(row.height * scale), height);
      // A row cut by the scroll border: paint what is visible of it.
      const from = Math.max(0, top);
      if (bottom <= from) continue;
      const active = data.coverMean(row.lanes, view, width, b.cover, b.scratch) ?? [];
      const period = Math.max(1, Math.round(scale));
      paintLane(pixels, width, from, bottom - from, width, b.cover, active, b.brush, background, period);
    }
    context.putImageData(b.image, 0, 0);
    for (const row of rows.slice(first, last)) {
      if (row.kind === "gpu") this.drawNames(context, scene, row);
      else if (row.kind === "stream") drawStream(context, scene, row);
    }
    drawOverlays(context, scene);
  }

  /** Borders and names of intervals that are wide enough for them. */
  private drawNames(context: CanvasRenderingContext2D, scene: LaneScene, row: Row): void {
    const found = scene.data.lane(scene.view, row.lanes[0]);
    if (!found) return;
    const { lane, names } = found;
    const { view, width } = scene;
    const from = Math.max(0, upperBound(lane.start, view.start) - 1);
    const to = upperBound(lane.start, view.end);
    if (to - from > width / 3) return;
    const top = row.top - scene.scrollTop;
    const toX = (ps: number) => ((ps - view.start) / length(view)) * width;
    context.font = FONT;
    context.textBaseline = "middle";
    for (let i = from; i < to; i++) {
      const left = Math.max(0, toX(lane.start[i]));
      const right = Math.min(width, toX(lane.end[i]));
      if (right - left < 4) continue;
      const category = scene.data.meta.categories[lane.category[i]];
      const work = isWork(category);
      if (work) {
        context.fillStyle = scene.theme.dark ? "#14171c" : "#ffffff";
        context.fillRect(right - 0.5, top, 1, row.height);
      }
      if (!work || right - left < 44 || lane.name[i] === NO_NAME || row.height < 18) continue;
      const text = shorten(names[lane.name[i]] ?? "", Math.floor((right - left - 8) / 6.6));
      if (category === "communication") {
        // Hatches of waiting may lie under it.
        context.fillStyle = scene.theme.dark ? "rgba(20,23,28,0.75)" : "rgba(255,255,255,0.8)";
        const wide = Math.min(context.measureText(text).width + 6, right - left - 4);
        context.fillRect(left + 2, top + row.height / 2 - 8, wide, 16);
        context.fillStyle = scene.theme.text;
      } else context.fillStyle = textOn(category, scene.theme.dark);
      context.fillText(text, left + 4, top + row.height / 2, right - left - 8);
    }
  }
}

function drawStream(context: CanvasRenderingContext2D, scene: LaneScene, row: Row): void {
  const { view, width, theme } = scene;
  const top = row.top - scene.scrollTop;
  context.fillStyle = LANE_BACKGROUND[theme.dark ? "dark" : "light"];
  context.fillRect(0, top, width, row.height);
  const events = scene.streamEvents(row);
  if (!events) return;
  const toX = (ps: number) => ((ps - view.start) / length(view)) * width;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (let i = 0; i < events.start.length; i++) {
    const left = Math.max(0, toX(events.start[i]));
    const right = Math.min(width, toX(events.end[i]));
    if (right < 0 || left > width) continue;
    const { color } = paintOf(events.category[i], theme.dark);
    context.fillStyle = color;
    context.fillRect(left, top, Math.max(right - left - 0.5, 0.5), row.height);
    if (right - left < 50) continue;
    context.fillStyle = textOn(events.category[i], theme.dark);
    const text = shorten(events.name[i], Math.floor((right - left - 6) / 6));
    context.fillText(text, left + 3, top + row.height / 2, right - left - 6);
  }
}

function drawOverlays(context: CanvasRenderingContext2D, scene: LaneScene): void {
  const { view, width, height, theme, rows } = scene;
  const toX = (ps: number) => ((ps - view.start) / length(view)) * width;
  const clip = (ps: number) => Math.min(Math.max(toX(ps), 0), width);
  if (scene.window) {
    // Outside the analysed window nothing is counted: veil it.
    const [left, right] = [clip(scene.window.start), clip(scene.window.end)];
    context.fillStyle = theme.dark ? "rgba(20,23,28,0.62)" : "rgba(255,255,255,0.66)";
    context.fillRect(0, 0, left, height);
    context.fillRect(right, 0, width - right, height);
    context.fillStyle = theme.muted;
    if (left > 0 && left < width) context.fillRect(left - 1, 0, 1, height);
    if (right > 0 && right < width) context.fillRect(right, 0, 1, height);
  }
  const box = (lane: number) => {
    const row = rows[rowOfLane(rows, lane)];
    return row ? { top: row.top - scene.scrollTop, height: row.height } : null;
  };
  context.strokeStyle = theme.focus;
  context.fillStyle = theme.text;
  context.lineWidth = 2;
  for (const hit of scene.hits) {
    const at = box(hit.lane);
    if (!at || at.top > height || at.top + at.height < 0) continue;
    const left = toX(hit.start);
    const right = toX(hit.end);
    if (right - left > 5) context.strokeRect(left + 1, at.top + 1, right - left - 2, at.height - 2);
    context.beginPath();
    const middle = (Math.max(left, 0) + Math.min(right, width)) / 2;
    context.moveTo(middle - 4, at.top - 5);
    context.lineTo(middle + 4, at.top - 5);
    context.lineTo(middle, at.top + 1);
    context.fill();
  }
  if (scene.highlight) {
    const left = toX(scene.highlight.start);
    const right = Math.max(toX(scene.highlight.end), left + 2);
    context.strokeStyle = theme.accent;
    context.lineWidth = 2;
    const done = new Set<number>();
    for (const lane of scene.highlight.lanes) {
      const at = box(lane);
      if (!at || done.has(at.top)) continue;
      done.add(at.top);
      context.strokeRect(left, at.top - 1, right - left, at.height + 2);
    }
  }
  if (scene.selection) {
    const [left, right] = [clip(scene.selection.start), clip(scene.selection.end)];
    context.fillStyle = theme.dark ? "rgba(130,185,245,0.2)" : "rgba(11,92,173,0.14)";
    context.fillRect(left, 0, right - left, height);
    context.fillStyle = theme.focus;
    context.fillRect(left - 1, 0, 2, height);
    context.fillRect(right - 1, 0, 2, height);
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

/** Text colours with enough contrast on the solid colours of the palette. */
function textOn(category: string, dark: boolean): string {
  return !dark && category === "compute" ? "#ffffff" : "#10131a";
}
