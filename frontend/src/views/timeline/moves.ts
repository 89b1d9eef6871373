import { pan, type Range, zoom } from "../../charts/viewport";
import { extent, SHORTEST_PS, setView, view } from "../../state/timelineView";

/** How keys, buttons and the wheel move what the timeline shows. */

export const ZOOM_KEY = 0.7;
const ZOOM_WHEEL = 0.0016;
const PAN_KEY = 0.15;
const WHEEL_LINE_PIXELS = 33;
const WHEEL_MOST_PIXELS = 400;

const current = (): { range: Range; all: Range } | null => {
  const range = view.peek();
  const all = extent.peek();
  return range && all ? { range, all } : null;
};

/** Show `factor` times as much, the point at `fraction` of the width staying where it is. */
export function zoomBy(factor: number, fraction = 0.5): void {
  const now = current();
  if (now) setView(zoom(now.range, factor, fraction, now.all, SHORTEST_PS));
}

/** Move by a share of what is shown. */
export function panBy(share: number): void {
  const now = current();
  if (now) setView(pan(now.range, share, now.all));
}

/** Zooms by a wheel with Ctrl or Cmd; the plain wheel scrolls the page. */
export function zoomByWheel(event: WheelEvent, element: Element): void {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  const box = element.getBoundingClientRect();
  const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? event.deltaY * WHEEL_LINE_PIXELS : event.deltaY;
  const bounded = Math.min(Math.max(pixels, -WHEEL_MOST_PIXELS), WHEEL_MOST_PIXELS);
  zoomBy(Math.exp(bounded * ZOOM_WHEEL), (event.clientX - box.left) / box.width);
}

/** What the keys do; the cursor's own keys need the cursor. */
export function keyActions(
  moveCursor: (lanes: number, edge: -1 | 0 | 1) => void,
  hideCursor: () => void,
  jump: (back: boolean) => void,
  account: () => void,
): Record<string, () => void> {
  return {
    w: () => zoomBy(ZOOM_KEY),
    "+": () => zoomBy(ZOOM_KEY),
    "=": () => zoomBy(ZOOM_KEY),
    s: () => zoomBy(1 / ZOOM_KEY),
    "-": () => zoomBy(1 / ZOOM_KEY),
    a: () => panBy(-PAN_KEY),
    ArrowLeft: () => panBy(-PAN_KEY),
    d: () => panBy(PAN_KEY),
    ArrowRight: () => panBy(PAN_KEY),
    "0": () => setView(null),
    Home: () => setView(null),
    ArrowUp: () => moveCursor(-1, 0),
    ArrowDown: () => moveCursor(1, 0),
    "[": () => moveCursor(0, -1),
    "]": () => moveCursor(0, 1),
    ",": () => moveCursor(0, -1),
    ".": () => moveCursor(0, 1),
    n: () => jump(false),
    p: () => jump(true),
    r: account,
    Escape: hideCursor,
  };
}
