import type { Recording, Series, TelemetryAnswer } from "../../api/telemetry";
import { makeAxis } from "../../charts/axis";
import { categoryFill, fitText } from "../../charts/canvas";
import { EVENTS, eventCategory } from "../../charts/families";
import { type Mark, Plot, type Scene } from "../../charts/Plot";
import { SERIES_LEFT, SERIES_RIGHT } from "../../charts/series";
import { dateTicks } from "../../charts/timeAxis";
import { formatDuration, formatInt, formatNumber } from "../../format";
import { lang, plural, t, tId } from "../../i18n";
import { Legend } from "../../ui/Swatch";
import { type AxisKind, type GpuLine, stepAt } from "./data";
import { clock } from "./words";

/** What happened when: one row for each GPU that was throttled, and one for each kind of span. */

export interface Happening {
  kind: string;
  /** Seconds since 1970, or steps. */
  start: number;
  end: number;
  text: string;
}

export interface EventRow {
  name: string;
  happenings: Happening[];
}

const MOST_ROWS = 24;
const SPANS = ["profile", "checkpoint", "validation", "garbage_collection"];

const during = (startMs: number, endMs: number): string =>
  `${clock(startMs)} · ${formatDuration(Math.max(endMs - startMs, 0))}`;

/** The rows of the picture, those with the longest throttling first among the GPUs. */
export function eventRows(
  answer: TelemetryAnswer,
  gpus: readonly GpuLine[],
  axis: AxisKind,
  series: readonly Series[],
): EventRow[] {
  const find = (id: number): Recording | undefined => answer.recordings.find((one) => one.id === id);
  const place = (unixMs: number, step: number | null): number | null =>
    axis === "time" ? unixMs / 1000 : (step ?? stepAt(series, unixMs));
  const add = (row: EventRow, kind: string, text: string, from: number | null, to: number | null) => {
    if (from !== null && to !== null) row.happenings.push({ kind, start: from, end: Math.max(to, from), text });
  };
  const rows: EventRow[] = [];
  for (const gpu of gpus) {
    const row: EventRow = { name: gpu.name, happenings: [] };
    for (const [rec, id] of gpu.places) {
      for (const band of find(rec)?.gpus.find((one) => one.id === id)?.throttled ?? []) {
        const steps =
          band.start_step === null
            ? ""
            : ` · ${t("events_steps", { from: formatInt(band.start_step), to: formatInt(band.end_step) })}`;
        const reasons = band.reasons.map((reason) => tId("reason", reason)).join(", ");
        add(
          row,
          band.kind,
          `${gpu.name} · ${tId("category", eventCategory(band.kind))}\n${reasons}\n${during(band.start_unix_ms, band.end_unix_ms)}${steps}`,
          place(band.start_unix_ms, band.start_step),
          place(band.end_unix_ms, band.end_step),
        );
      }
    }
    if (row.happenings.length) rows.push(row);
  }
  const long = ({ happenings }: EventRow) => happenings.reduce((sum, { start, end }) => sum + end - start, 0);
  rows.sort((a, b) => long(b) - long(a));
  const spans = SPANS.map((kind): EventRow => {
    const row: EventRow = { name: tId("category", eventCategory(kind)), happenings: [] };
    for (const recording of answer.recordings) {
      for (const span of recording.spans.filter((one) => one.kind === kind)) {
        const note = span.note ? `\n${span.note.slice(0, 300)}` : "";
        const step = span.step === null ? "" : ` · ${t("step_n", { n: span.step })}`;
        add(
          row,
          kind,
          `${row.name}${step}${note}\n${during(span.start_unix_ms, span.end_unix_ms)}`,
          place(span.start_unix_ms, span.step),
          place(span.end_unix_ms, span.step),
        );
      }
    }
    return row;
  });
  const { profile } = answer;
  if (profile) {
    const [from, to] = [place(profile.start_unix_ms, null), place(profile.end_unix_ms, null)];
    const text = `${t("events_this_profile")}\n${during(profile.start_unix_ms, profile.end_unix_ms)}`;
    add(spans[0], "profile", text, from, to);
  }
  return [...rows.slice(0, MOST_ROWS), ...spans.filter(({ happenings }) => happenings.length)];
}

const ROW = 38;
const BAR = 14;
const LEFT = SERIES_LEFT;
const BOTTOM = 26;
const MOST_MARKS = 4000;

function draw(
  { context, width, height, theme }: Scene,
  rows: readonly EventRow[],
  axis: AxisKind,
  from: number,
  to: number,
) {
  const right = width - SERIES_RIGHT;
  const toX = (x: number) => LEFT + ((x - from) / (to - from)) * (right - LEFT);
  const marks: Mark[] = [];
  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.textAlign = "center";
  context.beginPath();
  const wanted = Math.max(2, (right - LEFT) / 100);
  const ticks =
    axis === "time"
      ? dateTicks(from * 1000, to * 1000, wanted).map(({ at, label }) => ({ at: at / 1000, label }))
      : makeAxis(from, to, wanted).ticks.map(({ at }) => ({ at, label: formatNumber(at, 6) }));
  for (const { at, label } of ticks) {
    const x = Math.round(toX(at)) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, height - BOTTOM);
    context.fillText(label, Math.min(x, width - context.measureText(label).width / 2), height - BOTTOM / 2);
  }
  context.stroke();
  context.textAlign = "start";
  for (const [i, row] of rows.entries()) {
    const y = i * ROW;
    context.fillStyle = theme.text;
    context.fillText(fitText(context, row.name, right - LEFT), LEFT + 2, y + 10);
    context.fillStyle = theme.band;
    context.fillRect(LEFT, y + 18, right - LEFT, BAR);
    for (const { kind, start, end, text } of row.happenings) {
      if (end < from || start > to || marks.length >= MOST_MARKS) continue;
      const left = Math.max(LEFT, toX(start));
      const size = Math.max(Math.min(right, toX(end)) - left, 3);
      context.fillStyle = categoryFill(context, eventCategory(kind), theme);
      context.fillRect(left, y + 18, size, BAR);
      marks.push({ x: left, y: y + 18, width: size, height: BAR, text });
    }
  }
  return marks;
}

interface EventsProps {
  rows: readonly EventRow[];
  axis: AxisKind;
  from: number;
  to: number;
  summary: string;
}

/** Throttling, profiles, checkpoints and the like on the axis of the curves below. */
export function Events({ rows, axis, from, to, summary }: EventsProps) {
  if (!rows.length || !(to > from)) return null;
  const kinds = EVENTS.filter((kind) => rows.some(({ happenings }) => happenings.some((one) => one.kind === kind)));
  const categories = kinds.map(eventCategory);
  const count = rows.reduce((sum, { happenings }) => sum + happenings.length, 0);
  return (
    <Plot<Mark>
      name="telemetry-events"
      title={t("events_title")}
      summary={`${plural("events_count", count)} ${summary}`}
      height={rows.length * ROW + BOTTOM}
      depends={[rows, axis, from, to, lang.value]}
      draw={(scene) => draw(scene, rows, axis, from, to)}
      categories={categories}
      legend={<Legend categories={categories} />}
    />
  );
}
