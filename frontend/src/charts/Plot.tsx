import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { t, tId } from "../i18n";
import { dark } from "../state/host";
import { Icon } from "../ui/Icon";
import { useSize } from "../ui/useSize";
import { categoryFill, FONT, prepare } from "./canvas";
import { savePng } from "./png";
import { type Theme, themeOf } from "./theme";

/** One thing of a chart that can be pointed at: a bar, a cell, a dot. */
export interface Mark {
  x: number;
  y: number;
  width: number;
  height: number;
  /** What it is and says: the tooltip, and what a screen reader hears. */
  text: string;
}

export interface Scene {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  theme: Theme;
}

export interface PlotProps<M extends Mark> {
  /** Names the PNG file. */
  name: string;
  /** The heading, which the PNG has too. */
  title: string;
  /** What the chart says, in a sentence or two: screen readers hear it instead of the picture. */
  summary: string;
  height: number;
  /** Draws everything and returns what can be pointed at, in the order of the keyboard. */
  draw: (scene: Scene) => M[];
  /** Draw anew when one of these changes (beside the size and the theme). */
  depends: readonly unknown[];
  /** A click on a mark, or Enter. */
  onChoose?: (mark: M) => void;
  /** A key under the chart that its PNG has too, as text. */
  legend?: ComponentChildren;
  /** Categories of time whose colours the PNG explains. */
  categories?: readonly string[];
  legendText?: string;
  /** Beside the heading. */
  tools?: ComponentChildren;
}

/** The mark pointed at, by the keyboard or the pointer. */
interface Pointed {
  index: number;
  keyboard: boolean;
}

const inside = (mark: Mark, x: number, y: number): boolean =>
  x >= mark.x && x < mark.x + Math.max(mark.width, 1) && y >= mark.y && y < mark.y + Math.max(mark.height, 1);

/** The nearest mark in a direction, for the arrow keys. */
export function nextMark(marks: readonly Mark[], from: number, key: string): number {
  if (from < 0) return marks.length ? 0 : -1;
  const here = marks[from];
  const [cx, cy] = [here.x + here.width / 2, here.y + here.height / 2];
  const across = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
  let best = from;
  let least = Number.POSITIVE_INFINITY;
  for (const [i, mark] of marks.entries()) {
    const [dx, dy] = [mark.x + mark.width / 2 - cx, mark.y + mark.height / 2 - cy];
    const [along, beside] = across ? [dx, dy] : [dy, dx];
    if (along * sign <= 0.25) continue;
    // Straight ahead before aside.
    const distance = Math.abs(along) + 3 * Math.abs(beside);
    if (distance < least) {
      least = distance;
      best = i;
    }
  }
  return best;
}

/** A chart on a canvas: marks answer to the pointer and the arrow keys, and the whole can be saved as a PNG. */
export function Plot<M extends Mark>(props: PlotProps<M>) {
  const { height, draw, onChoose } = props;
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const marks = useRef<M[]>([]);
  const { width, scale } = useSize(box);
  const [active, setActive] = useState<Pointed | null>(null);
  // What the next key acts on, which may come before the last one has been drawn.
  const pointed = useRef<Pointed | null>(null);
  const point = (next: Pointed | null) => {
    pointed.current = next;
    setActive(next);
  };
  const theme = themeOf(dark.value);

  useLayoutEffect(() => {
    if (!width || !canvas.current) return;
    const context = prepare(canvas.current, width, height, scale);
    if (!context) return;
    context.clearRect(0, 0, width, height);
    context.font = FONT;
    context.textBaseline = "middle";
    marks.current = draw({ context, width, height, theme });
    const mark = active ? marks.current[active.index] : undefined;
    if (mark) {
      context.strokeStyle = theme.text;
      context.lineWidth = 2;
      context.strokeRect(mark.x, mark.y, Math.max(mark.width, 1), Math.max(mark.height, 1));
    }
  }, [width, height, scale, theme, active?.index, ...props.depends]);

  const at = (event: MouseEvent): number => {
    const rectangle = canvas.current?.getBoundingClientRect();
    if (!rectangle) return -1;
    const [x, y] = [event.clientX - rectangle.left, event.clientY - rectangle.top];
    return marks.current.findLastIndex((mark) => inside(mark, x, y));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = pointed.current?.index ?? -1;
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      const next = nextMark(marks.current, index, event.key);
      if (next >= 0) point({ index: next, keyboard: true });
    } else if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      const last = marks.current.length - 1;
      if (last >= 0) point({ index: event.key === "Home" ? 0 : last, keyboard: true });
    } else if ((event.key === "Enter" || event.key === " ") && marks.current[index] && onChoose) {
      event.preventDefault();
      onChoose(marks.current[index]);
    } else if (event.key === "Escape") point(null);
  };

  const save = () => {
    if (!width) return;
    savePng({
      name: props.name,
      title: props.title,
      width,
      height,
      theme,
      draw,
      legend: props.categories?.map((category) => ({
        fill: (context) => categoryFill(context, category, theme),
        label: tId("category", category),
      })),
      legendText: props.legendText,
    });
  };

  const mark = active ? marks.current[active.index] : undefined;
  return (
    <figure class="plot">
      <figcaption class="plot-head">
        <h3>{props.title}</h3>
        <span class="plot-tools">
          {props.tools}
          <button type="button" class="quiet save" onClick={save}>
            <Icon name="save" />
            PNG
            <span class="hidden"> {props.title}</span>
          </button>
        </span>
      </figcaption>
      <div
        class="plot-box"
        ref={box}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the arrow keys walk over its marks
        tabIndex={0}
        role="application"
        aria-roledescription={t("chart")}
        aria-label={`${props.title}. ${props.summary}`}
        onMouseMove={(event) => {
          const index = at(event);
          if (index !== (active?.index ?? -1)) point(index < 0 ? null : { index, keyboard: false });
        }}
        onMouseLeave={() => active && !active.keyboard && point(null)}
        onBlur={() => point(null)}
        onKeyDown={onKeyDown}
        onClick={(event) => {
          const found = marks.current[at(event)];
          if (found && onChoose) onChoose(found);
        }}
        style={{ height: `${height}px`, cursor: mark && onChoose ? "pointer" : undefined }}
      >
        <canvas ref={canvas} aria-hidden="true" style={{ width: `${width}px`, height: `${height}px` }} />
        {mark ? (
          <div
            class="tip plot-tip"
            aria-hidden="true"
            style={{
              ...(mark.x + mark.width / 2 > width / 2
                ? { right: `${Math.max(0, width - mark.x)}px` }
                : { left: `${mark.x + mark.width}px` }),
              top: `${Math.min(mark.y + mark.height + 6, height)}px`,
            }}
          >
            {mark.text.split("\n").map((line, i) => (
              <p key={`${i}`}>{line}</p>
            ))}
          </div>
        ) : null}
      </div>
      <p class="hidden" aria-live="polite">
        {mark && active?.keyboard ? mark.text : ""}
      </p>
      {props.legend}
    </figure>
  );
}
