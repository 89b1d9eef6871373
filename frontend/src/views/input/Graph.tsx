import { useRef } from "preact/hooks";
import type { InputPipeline, InputStage } from "../../api/input";
import { fitText } from "../../charts/canvas";
import { type Mark, Plot, type Scene } from "../../charts/Plot";
import { formatInt, formatMeasured, formatPercent, shorten } from "../../format";
import { lang, t, tId } from "../../i18n";
import { useSize } from "../../ui/useSize";
import { type Layout, layoutOf, type Pace } from "./layout";

interface StageMark extends Mark {
  stage: number;
}

const BOX = 78;
const BETWEEN = 26;
const NARROWEST = 118;
const WIDEST = 230;
const PAD = 8;
const EDGE = 16;

/** How many elements at once, and how that was set. */
export function atOnce({ parallelism, concurrency, autotuned }: InputStage): string {
  const count = parallelism ?? concurrency;
  const tuned = autotuned === null ? "" : ` (${t(autotuned ? "input_autotuned" : "input_fixed")})`;
  return `${t("input_at_once", { n: formatInt(count) })}${tuned}`;
}

export const describeStage = (pipeline: InputPipeline, index: number, pace: Pace): string => {
  const stage = pipeline.stages[index];
  return [
    `${shorten(stage.name, 90)}${index === pipeline.limiting ? ` · ${t(`input_pace_${pace}`)}` : ""}`,
    tId("role", stage.role),
    `${t("input_utilization")}: ${formatPercent(stage.utilization)} · ${t("input_busy")}: ${formatMeasured(stage.busy_ms)}`,
    `${t("input_per_element")}: ${formatMeasured(stage.per_element_ms)} · ${t("input_elements")}: ${formatInt(stage.calls)}`,
    ...(stage.role === "glue" ? [] : [atOnce(stage)]),
    ...(stage.buffer === null ? [] : [t("input_buffer_of", { n: formatInt(stage.buffer) })]),
    ...(stage.background ? [t("input_background")] : []),
    ...(stage.calls_python && pipeline.source === "tf_data" ? [t("input_python")] : []),
  ].join("\n");
};

interface Geometry {
  /** Columns by depth with the training on the right, or rows with the training below. */
  across: boolean;
  box: number;
  height: number;
}

/** Side by side where there is room for all; else one below the other. */
export function geometryOf({ depths, rows }: Layout, width: number): Geometry {
  const across = (width - (depths - 1) * BETWEEN) / depths >= NARROWEST;
  if (across)
    return {
      across,
      box: Math.min(WIDEST, (width - (depths - 1) * BETWEEN) / depths),
      height: rows * BOX + (rows - 1) * EDGE + 2 * EDGE,
    };
  return {
    across,
    box: Math.min(360, (width - (rows - 1) * EDGE) / rows),
    height: depths * BOX + (depths - 1) * BETWEEN + 2 * EDGE,
  };
}

function draw(scene: Scene, pipeline: InputPipeline, layout: Layout, pace: Pace, held: number | null): StageMark[] {
  const { context, width, height, theme } = scene;
  const { across, box } = geometryOf(layout, width);
  const counts = new Map<number, number>();
  for (const { depth } of layout.places) counts.set(depth, (counts.get(depth) ?? 0) + 1);
  const corner = ({ depth, row }: { depth: number; row: number }): [number, number] => {
    const level = layout.depths - 1 - depth;
    const beside = counts.get(depth) ?? 1;
    if (across) {
      const left = (width - layout.depths * box - (layout.depths - 1) * BETWEEN) / 2;
      const top = (height - beside * BOX - (beside - 1) * EDGE) / 2;
      return [left + level * (box + BETWEEN), top + row * (BOX + EDGE)];
    }
    const left = (width - beside * box - (beside - 1) * EDGE) / 2;
    return [left + row * (box + EDGE), EDGE + level * (BOX + BETWEEN)];
  };
  context.strokeStyle = theme.muted;
  context.fillStyle = theme.muted;
  context.lineWidth = 1.5;
  for (const [from, to] of layout.arrows) {
    const [ax, ay] = corner(layout.places[from]);
    const [bx, by] = corner(layout.places[to]);
    const [x1, y1] = across ? [ax + box, ay + BOX / 2] : [ax + box / 2, ay + BOX];
    const [x2, y2] = across ? [bx, by + BOX / 2] : [bx + box / 2, by];
    context.beginPath();
    context.moveTo(x1, y1);
    if (across) context.bezierCurveTo(x1 + BETWEEN / 2, y1, x2 - BETWEEN / 2, y2, x2 - 6, y2);
    else context.bezierCurveTo(x1, y1 + BETWEEN / 2, x2, y2 - BETWEEN / 2, x2, y2 - 6);
    context.stroke();
    context.beginPath();
    context.moveTo(x2, y2);
    context.lineTo(across ? x2 - 8 : x2 - 5, across ? y2 - 5 : y2 - 8);
    context.lineTo(across ? x2 - 8 : x2 + 5, across ? y2 + 5 : y2 - 8);
    context.fill();
  }
  return layout.places.map((place): StageMark => {
    const [x, y] = corner(place);
    const room = box - 2 * PAD;
    if (place.stage < 0) {
      context.fillStyle = theme.band;
      context.fillRect(x, y, box, BOX);
      context.fillStyle = theme.text;
      context.font = `600 ${context.font}`;
      context.fillText(fitText(context, t("input_training"), room), x + PAD, y + 18);
      context.font = context.font.replace("600 ", "");
      context.fillStyle = theme.muted;
      const waits = held === null ? "" : t("input_waits", { share: formatPercent(held) });
      context.fillText(fitText(context, waits, room), x + PAD, y + 40);
      return { x, y, width: box, height: BOX, stage: -1, text: `${t("input_training")}\n${waits}` };
    }
    const stage = pipeline.stages[place.stage];
    const slowest = place.stage === pipeline.limiting;
    const limits = slowest && pace === "limits";
    context.fillStyle = theme.surface;
    context.fillRect(x, y, box, BOX);
    context.strokeStyle = limits ? theme.accent : slowest ? theme.focus : theme.muted;
    context.lineWidth = slowest ? 3 : 1;
    // Dashed: works on threads of its own, ahead of who takes its elements.
    context.setLineDash(stage.background && !slowest ? [5, 3] : []);
    context.strokeRect(x + 0.5, y + 0.5, box - 1, BOX - 1);
    context.setLineDash([]);
    context.fillStyle = theme.text;
    context.font = `600 ${context.font}`;
    context.fillText(fitText(context, shorten(stage.name, 60), room), x + PAD, y + 15);
    context.font = context.font.replace("600 ", "");
    context.fillStyle = theme.muted;
    const second =
      stage.role === "glue"
        ? tId("role", stage.role)
        : stage.buffer !== null && stage.role === "prefetch"
          ? t("input_buffer_of", { n: formatInt(stage.buffer) })
          : tId("role", stage.role);
    context.fillText(fitText(context, second, room), x + PAD, y + 32);
    if (stage.role !== "glue" && stage.per_element_ms) {
      const each = t("input_each", {
        ms: formatMeasured(stage.per_element_ms),
        n: formatInt(stage.parallelism ?? stage.concurrency),
      });
      context.fillText(fitText(context, each, room), x + PAD, y + 48);
    }
    context.fillStyle = theme.band;
    context.fillRect(x + PAD, y + BOX - 20, room, 10);
    context.fillStyle = limits ? theme.accent : theme.focus;
    context.fillRect(x + PAD, y + BOX - 20, room * Math.min(1, stage.utilization), 10);
    if (slowest) {
      const words = t(`input_pace_${pace}`);
      context.font = `600 ${context.font}`;
      const size = Math.min(context.measureText(words).width, width - 4);
      const left = Math.min(Math.max(x, 0), Math.max(0, width - size - 4));
      context.fillStyle = limits ? theme.accent : theme.focus;
      context.fillText(words, left, y - 8);
      context.font = context.font.replace("600 ", "");
    }
    return {
      x,
      y,
      width: box,
      height: BOX,
      stage: place.stage,
      text: describeStage(pipeline, place.stage, pace),
    };
  });
}

interface GraphProps {
  pipeline: InputPipeline;
  pace: Pace;
  held: number | null;
  summary: string;
  choose: (stage: number) => void;
}

/** The stages from the source to the training, the one that sets the pace marked. */
export function Graph({ pipeline, pace, held, summary, choose }: GraphProps) {
  const box = useRef<HTMLDivElement>(null);
  const { width } = useSize(box);
  const layout = layoutOf(pipeline);
  return (
    <div ref={box}>
      <Plot<StageMark>
        name="input-pipeline"
        title={t("input_graph")}
        summary={summary}
        height={geometryOf(layout, width || 1000).height}
        depends={[pipeline, pace, held, lang.value]}
        draw={(scene) => draw(scene, pipeline, layout, pace, held)}
        onChoose={({ stage }) => stage >= 0 && choose(stage)}
        legendText={t("input_key")}
        legend={<p class="hint muted">{t("input_key")}</p>}
      />
    </div>
  );
}
