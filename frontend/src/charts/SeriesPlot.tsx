import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { lang } from "../i18n";
import { useSize } from "../ui/useSize";
import { FONT } from "./canvas";
import { type Mark, Plot } from "./Plot";
import {
  drawSeries,
  legendRows,
  SERIES_LEFT,
  type SeriesOptions,
  seriesExtent,
  seriesHeight,
  valueAtPixel,
} from "./series";

interface SeriesPlotProps extends SeriesOptions {
  /** Names the PNG file. */
  name: string;
  title: string;
  /** What the lines say: screen readers hear it instead of the picture. */
  summary: string;
  /** Beside the heading. */
  tools?: ComponentChildren;
  /** Of the plot without its legend. */
  height: number;
  /** Draw anew when one of these changes (beside the size and the theme). */
  depends: readonly unknown[];
  /** The user chose a stretch by dragging (null: all again, by a double click). */
  onZoom?: (range: { start: number; end: number } | null) => void;
}

/** Shorter drags are clicks. */
const SHORTEST_DRAG = 6;

let measuring: CanvasRenderingContext2D | null | undefined;

function measure(text: string): number {
  measuring ??= document.createElement("canvas").getContext("2d");
  if (!measuring) return text.length * 7;
  measuring.font = FONT;
  return measuring.measureText(text).width;
}

/** Lines over time with a heading, a legend, a summary and a PNG; dragging chooses a stretch. */
export function SeriesPlot({ name, title, summary, tools, height, depends, onZoom, ...options }: SeriesPlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const { width } = useSize(box);
  const [drag, setDrag] = useState<{ from: number; to: number; area: DOMRect } | null>(null);
  const rows = options.lines.length > 1 && width ? legendRows(options.lines, width - SERIES_LEFT, measure).length : 0;
  const areaOf = (): DOMRect | undefined => box.current?.querySelector(".plot-box")?.getBoundingClientRect();
  const begin = (event: PointerEvent) => {
    const area = areaOf();
    if (!onZoom || event.button !== 0 || event.pointerType === "touch" || !area) return;
    if (event.clientY < area.top || event.clientY > area.bottom || event.clientX < area.left + SERIES_LEFT) return;
    setDrag({ from: event.clientX, to: event.clientX, area });
  };
  const end = () => {
    if (!drag) return;
    setDrag(null);
    if (Math.abs(drag.to - drag.from) < SHORTEST_DRAG) return;
    const extent = seriesExtent(options);
    const [start, stop] = [drag.from, drag.to]
      .map((x) => valueAtPixel(x - drag.area.left, drag.area.width, extent))
      .sort((a, b) => a - b);
    if (stop > start) onZoom?.({ start, end: stop });
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dragging is an extra; buttons and links zoom too
    <div
      class="series"
      ref={box}
      onPointerDown={begin}
      onPointerMove={(event) => drag && setDrag({ ...drag, to: event.clientX })}
      onPointerUp={end}
      onPointerLeave={() => setDrag(null)}
      onDblClick={() => onZoom?.(null)}
    >
      <Plot<Mark>
        name={name}
        title={title}
        summary={summary}
        tools={tools}
        height={seriesHeight(height, rows)}
        depends={[...depends, rows, lang.value]}
        draw={(scene) => drawSeries(scene, options)}
      />
      {drag && Math.abs(drag.to - drag.from) >= SHORTEST_DRAG ? (
        <div
          class="drag-range"
          style={{
            left: `${Math.min(drag.from, drag.to)}px`,
            width: `${Math.abs(drag.to - drag.from)}px`,
            top: `${drag.area.top}px`,
            height: `${drag.area.height}px`,
          }}
        />
      ) : null}
    </div>
  );
}
