/** Lines over time. The one file that knows uPlot. */

import uPlot from "uplot";
import css from "uplot/dist/uPlot.min.css?inline";
import { formatNumber } from "../format";
import { lineStyle, themeOf } from "./theme";

export interface Line {
  label: string;
  /** One value a time; null: none there. */
  values: (number | null)[];
  /** Which colour and dash it gets: the same line has the same in every chart. */
  style: number;
}

/** A stretch of time behind the lines. */
export interface Band {
  start: number;
  end: number;
  /** A CSS colour, better half transparent. */
  color: string;
  label: string;
}

export interface SeriesOptions {
  width: number;
  height: number;
  dark: boolean;
  /** The axis of times: `unix` are seconds since 1970, anything else are plain numbers with that unit. */
  time: "unix" | string;
  unit: string;
  lines: readonly Line[];
  /** Increasing. */
  times: readonly number[];
  bands?: readonly Band[];
  /** Vertical lines, such as where profiles were taken. */
  marks?: readonly { at: number; label: string }[];
  /** Lowest and highest value shown; null: as the data has it. */
  range?: readonly [number | null, number | null];
  /** Charts with the same key move their cursors together. */
  sync?: string;
  /** The user chose a stretch of time by dragging (null: all again). */
  onZoom?: (range: { start: number; end: number } | null) => void;
  /** The stretch that is shown. */
  zoom?: { start: number; end: number } | null;
}

let styled = false;

function addStyle(): void {
  if (styled) return;
  styled = true;
  const sheet = document.createElement("style");
  sheet.textContent = css;
  document.head.append(sheet);
}

export interface SeriesChart {
  canvas: HTMLCanvasElement;
  destroy: () => void;
}

/** Draws lines into an element; call `destroy` before drawing others. */
export function drawSeries(element: HTMLElement, options: SeriesOptions): SeriesChart {
  addStyle();
  const theme = themeOf(options.dark);
  const axis = { stroke: theme.muted, grid: { stroke: theme.line, width: 1 }, ticks: { stroke: theme.line, width: 1 } };
  const [low, high] = options.range ?? [null, null];
  const plot = new uPlot(
    {
      width: options.width,
      height: options.height,
      legend: { show: true, live: true },
      cursor: {
        drag: { x: true, y: false, setScale: false },
        ...(options.sync ? { sync: { key: options.sync } } : {}),
      },
      scales: {
        x: {
          time: options.time === "unix",
          ...(options.zoom ? { min: options.zoom.start, max: options.zoom.end } : {}),
        },
        y: {
          range: (_self, min, max) => {
            const from = low ?? Math.min(0, min ?? 0);
            const to = high ?? (max ?? 1) * 1.05;
            return [from, to > from ? to : from + 1];
          },
        },
      },
      axes: [
        {
          ...axis,
          ...(options.time === "unix"
            ? {}
            : {
                values: (_self: uPlot, ticks: number[]) => ticks.map((tick) => `${formatNumber(tick)} ${options.time}`),
              }),
        },
        { ...axis, size: 64, values: (_self, ticks) => ticks.map((tick) => `${formatNumber(tick)} ${options.unit}`) },
      ],
      series: [
        {},
        ...options.lines.map((line): uPlot.Series => {
          const { color, dash } = lineStyle(line.style, options.dark);
          return {
            label: line.label,
            stroke: color,
            width: 1.5,
            dash,
            spanGaps: false,
            points: { show: line.values.length < 3 ? true : undefined },
            value: (_self, value) =>
              value === null || value === undefined ? "–" : `${formatNumber(value)} ${options.unit}`,
          };
        }),
      ],
      hooks: {
        drawClear: [
          (self) => {
            const { ctx, bbox } = self;
            ctx.save();
            ctx.beginPath();
            ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
            ctx.clip();
            for (const band of options.bands ?? []) {
              const left = self.valToPos(band.start, "x", true);
              const right = self.valToPos(band.end, "x", true);
              ctx.fillStyle = band.color;
              ctx.fillRect(left, bbox.top, Math.max(right - left, 2), bbox.height);
            }
            ctx.restore();
          },
        ],
        draw: [
          (self) => {
            const { ctx, bbox } = self;
            ctx.save();
            ctx.strokeStyle = theme.accent;
            ctx.lineWidth = 2;
            for (const mark of options.marks ?? []) {
              const x = self.valToPos(mark.at, "x", true);
              if (x < bbox.left || x > bbox.left + bbox.width) continue;
              ctx.beginPath();
              ctx.moveTo(x, bbox.top);
              ctx.lineTo(x, bbox.top + bbox.height);
              ctx.stroke();
            }
            ctx.restore();
          },
        ],
        setSelect: [
          (self) => {
            const { left, width } = self.select;
            if (width < 4) return;
            options.onZoom?.({ start: self.posToVal(left, "x"), end: self.posToVal(left + width, "x") });
            self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          },
        ],
      },
    },
    [options.times as number[], ...options.lines.map((line) => line.values)] as uPlot.AlignedData,
    element,
  );
  const reset = () => options.onZoom?.(null);
  plot.over.addEventListener("dblclick", reset);
  return {
    canvas: plot.ctx.canvas,
    destroy: () => {
      plot.over.removeEventListener("dblclick", reset);
      plot.destroy();
    },
  };
}
