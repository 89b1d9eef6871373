import { useEffect, useRef } from "preact/hooks";
import { dark } from "../state/host";
import { shownProfile } from "../state/resource";
import { fileName, saveBlob } from "../ui/export";
import { Icon } from "../ui/Icon";
import { useSize } from "../ui/useSize";
import { drawSeries, type SeriesChart, type SeriesOptions } from "./series";
import { themeOf } from "./theme";

interface SeriesPlotProps extends Omit<SeriesOptions, "width" | "dark"> {
  /** Names the PNG file. */
  name: string;
  title: string;
  /** What the lines say: screen readers hear it instead of the picture. */
  summary: string;
  /** Draw anew when one of these changes (beside the size and the theme). */
  depends: readonly unknown[];
}

const PNG_HEAD = 34;

/** Lines over time with a heading, a legend, a summary and a PNG. */
export function SeriesPlot({ name, title, summary, depends, ...options }: SeriesPlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<SeriesChart | null>(null);
  const { width } = useSize(box);
  const isDark = dark.value;
  useEffect(() => {
    const element = box.current;
    if (!element || width < 50) return;
    chart.current = drawSeries(element, { ...options, width, dark: isDark });
    return () => {
      chart.current?.destroy();
      chart.current = null;
    };
  }, [width, isDark, ...depends]);
  const save = () => {
    const drawn = chart.current?.canvas;
    if (!drawn) return;
    const theme = themeOf(isDark);
    const scale = drawn.width / Math.max(1, drawn.clientWidth);
    const picture = document.createElement("canvas");
    picture.width = drawn.width;
    picture.height = drawn.height + PNG_HEAD * scale;
    const context = picture.getContext("2d");
    if (!context) return;
    context.fillStyle = theme.surface;
    context.fillRect(0, 0, picture.width, picture.height);
    context.fillStyle = theme.text;
    context.font = `600 ${14 * scale}px system-ui, sans-serif`;
    context.fillText(title, 8 * scale, 22 * scale, picture.width);
    context.drawImage(drawn, 0, PNG_HEAD * scale);
    const profile = shownProfile.peek();
    const file = fileName([profile?.run, profile?.session, name], "png");
    picture.toBlob((blob) => blob && saveBlob(blob, file), "image/png");
  };
  return (
    <figure class="plot">
      <figcaption class="plot-head">
        <h3>{title}</h3>
        <span class="plot-tools">
          <button type="button" class="quiet save" onClick={save}>
            <Icon name="save" />
            PNG
            <span class="hidden"> {title}</span>
          </button>
        </span>
      </figcaption>
      <p class="hidden">{summary}</p>
      <div class="series" ref={box} aria-hidden="true" />
    </figure>
  );
}
