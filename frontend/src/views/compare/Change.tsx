import type { Comparison } from "../../api/compare";
import { makeAxis, niceStep } from "../../charts/axis";
import { type Mark, Plot, type Scene } from "../../charts/Plot";
import { lineStyle } from "../../charts/theme";
import { formatDuration, formatInt, formatMeasured, formatPercent } from "../../format";
import { lang, t } from "../../i18n";
import { binsOf, type Extent, extentOf, unitTimes } from "./spread";
import { formatChange } from "./words";

/** Changes within this are called none (docs/compare.md). */
const LEAST_CHANGE = 0.05;
const STRIP = 74;
const AXIS = 24;
const CHANGE_TOP = 2 * STRIP + AXIS + 18;
const CHANGE = 44;
const HEIGHT = CHANGE_TOP + CHANGE + AXIS;
const DOT = 6;

const unitWord = (answer: Comparison): string =>
  t(answer.unit === "sample" ? "compare_per_sample" : "compare_per_step");

interface Run {
  name: string;
  values: number[];
  mean: number | null;
  style: number;
}

const runsOf = (answer: Comparison): Run[] => [
  { name: t("compare_before"), values: unitTimes(answer, "before"), mean: answer.before.time_ms, style: 6 },
  { name: t("compare_after"), values: unitTimes(answer, "after"), mean: answer.after.time_ms, style: 0 },
];

const runText = (run: Run): string =>
  t("compare_run_text", {
    name: run.name,
    n: formatInt(run.values.length),
    mean: formatMeasured(run.mean),
    low: formatMeasured(Math.min(...run.values)),
    high: formatMeasured(Math.max(...run.values)),
  });

export function changeText(answer: Comparison): string {
  if (!answer.change) return "";
  const { value, low, high } = answer.change;
  return t("compare_change_text", {
    change: formatChange(value),
    low: formatChange(low),
    high: formatChange(high),
    confidence: formatPercent(answer.confidence),
  });
}

/** One run's steps, mirrored about the middle of its strip: a dot a step, or bars where they do not fit. */
function drawStrip(scene: Scene, run: Run, extent: Extent, left: number, top: number): Mark[] {
  const { context, width, theme } = scene;
  const middle = top + STRIP / 2 + 6;
  const room = width - left - 8;
  const toX = (value: number) => left + ((value - extent.low) / (extent.high - extent.low)) * room;
  const { color } = lineStyle(run.style, theme.dark);
  const bins = binsOf(run.values, extent, Math.max(10, Math.floor(room / DOT)));
  const most = Math.max(...bins.counts, 1);
  const tall = STRIP - 26;
  const marks: Mark[] = [];
  const pitch = room / bins.counts.length;
  const dots = most * DOT <= tall;
  context.fillStyle = color;
  for (const [i, members] of bins.members.entries()) {
    if (!members.length) continue;
    const x = left + i * pitch;
    const half = dots ? (members.length * DOT) / 2 : Math.max(1, (members.length / most) * tall * 0.5);
    if (dots) {
      for (const [k, member] of members.entries()) {
        context.beginPath();
        const y = middle - half + DOT / 2 + k * DOT;
        context.arc(Math.min(toX(run.values[member]), left + room), y, DOT / 2 - 0.3, 0, 2 * Math.PI);
        context.fill();
      }
    } else context.fillRect(x, middle - half, Math.max(pitch - 1, 1), 2 * half);
    const values = members.map((member) => run.values[member]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const range = low === high ? formatMeasured(low) : `${formatMeasured(low)} – ${formatMeasured(high)}`;
    marks.push({
      x: x - 1,
      y: middle - Math.max(half, 6),
      width: pitch + 2,
      height: 2 * Math.max(half, 6),
      text: `${run.name}: ${t("compare_steps_here", { n: formatInt(members.length) })}, ${range}`,
    });
  }
  if (bins.beyond) {
    context.fillStyle = theme.accent;
    context.textAlign = "end";
    context.fillText(t("compare_beyond", { n: formatInt(bins.beyond) }), left + room, top + 12);
    context.textAlign = "start";
  }
  if (run.mean !== null) {
    const x = Math.min(toX(run.mean), left + room);
    context.strokeStyle = theme.text;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, top + 20);
    context.lineTo(x, top + STRIP - 2);
    context.stroke();
    context.fillStyle = theme.text;
    const words = t("compare_mean", { value: formatMeasured(run.mean) });
    const half = context.measureText(words).width / 2;
    const beyondRoom = bins.beyond ? 150 : 0;
    context.textAlign = "center";
    context.fillText(words, Math.max(left + half, Math.min(x, left + room - half - beyondRoom)), top + 12);
    context.textAlign = "start";
    marks.push({ x: x - 5, y: top, width: 10, height: STRIP, text: runText(run) });
  }
  return marks;
}

function drawAxis(scene: Scene, extent: Extent, left: number, top: number): void {
  const { context, width, theme } = scene;
  const room = width - left - 8;
  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.lineWidth = 1;
  context.textAlign = "center";
  context.beginPath();
  context.moveTo(left, top + 0.5);
  context.lineTo(left + room, top + 0.5);
  for (const tick of makeAxis(extent.low, extent.high, Math.max(3, room / 90)).ticks) {
    const x = Math.round(left + ((tick.at - extent.low) / (extent.high - extent.low)) * room) + 0.5;
    context.moveTo(x, top - 2 * STRIP);
    context.lineTo(x, top + 4);
    context.fillText(tick.label, Math.min(x, width - context.measureText(tick.label).width / 2), top + 14);
  }
  context.stroke();
  context.textAlign = "start";
}

/** The interval of the change over its own axis, with the stretch that counts as none. */
function drawInterval(scene: Scene, answer: Comparison, left: number, top: number): Mark[] {
  const { context, width, theme } = scene;
  const { change } = answer;
  if (!change) return [];
  const room = width - left - 8;
  // No change and what counts as none always show, and as much beside the interval as it takes to see where it ends.
  const [least, most] = [Math.min(change.low, -1.6 * LEAST_CHANGE), Math.max(change.high, 1.6 * LEAST_CHANGE)];
  const margin = (most - least) * 0.06;
  const [first, last] = [least - margin, most + margin];
  const toX = (share: number) => left + ((share - first) / (last - first)) * room;
  const middle = top + CHANGE / 2;
  context.fillStyle = theme.band;
  context.fillRect(toX(-LEAST_CHANGE), top, toX(LEAST_CHANGE) - toX(-LEAST_CHANGE), CHANGE);
  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.lineWidth = 1;
  context.textAlign = "center";
  context.beginPath();
  const step = niceStep(last - first, Math.max(4, room / 80));
  for (let i = Math.ceil(first / step); i * step <= last; i++) {
    const x = Math.round(toX(i * step)) + 0.5;
    context.moveTo(x, top + CHANGE);
    context.lineTo(x, top + CHANGE + 4);
    const words = formatChange(i * step);
    const half = context.measureText(words).width / 2;
    context.fillText(words, Math.min(Math.max(x, left + half), width - half), top + CHANGE + 14);
  }
  context.moveTo(left, top + CHANGE + 0.5);
  context.lineTo(left + room, top + CHANGE + 0.5);
  context.stroke();
  context.strokeStyle = theme.text;
  context.beginPath();
  context.moveTo(Math.round(toX(0)) + 0.5, top - 4);
  context.lineTo(Math.round(toX(0)) + 0.5, top + CHANGE);
  context.stroke();
  const sure = change.low > 0 || change.high < 0;
  const color = sure ? lineStyle(change.value < 0 ? 2 : 1, theme.dark).color : theme.muted;
  context.strokeStyle = color;
  context.lineWidth = 4;
  context.beginPath();
  context.moveTo(toX(change.low), middle);
  context.lineTo(toX(change.high), middle);
  context.stroke();
  context.lineWidth = 2;
  context.beginPath();
  for (const end of [change.low, change.high]) {
    context.moveTo(toX(end), middle - 8);
    context.lineTo(toX(end), middle + 8);
  }
  context.stroke();
  context.fillStyle = color;
  context.beginPath();
  context.moveTo(toX(change.value), middle - 8);
  context.lineTo(toX(change.value) + 8, middle);
  context.lineTo(toX(change.value), middle + 8);
  context.lineTo(toX(change.value) - 8, middle);
  context.fill();
  context.textAlign = "start";
  const x = toX(change.low);
  return [
    { x: x - 8, y: top + 6, width: toX(change.high) - x + 16, height: CHANGE - 12, text: changeText(answer) },
    {
      x: toX(-LEAST_CHANGE),
      y: top,
      width: toX(LEAST_CHANGE) - toX(-LEAST_CHANGE),
      height: 6,
      text: t("compare_none_band", { share: formatPercent(LEAST_CHANGE) }),
    },
  ];
}

/** The steps of both runs on one axis with their means, and the interval of the change. */
export function Change({ answer }: { answer: Comparison }) {
  const runs = runsOf(answer);
  const extent = extentOf(runs.map(({ values }) => values));
  if (!extent) return null;
  const hasChange = answer.change !== null;
  const draw = (scene: Scene): Mark[] => {
    const { context, theme, width } = scene;
    const left = width < 560 ? 64 : 110;
    drawAxis(scene, extent, left, 2 * STRIP);
    const marks: Mark[] = [];
    for (const [i, run] of runs.entries()) {
      context.fillStyle = theme.text;
      context.fillText(run.name, 0, i * STRIP + STRIP / 2);
      context.fillStyle = theme.muted;
      context.fillText(t("compare_steps_short", { n: formatInt(run.values.length) }), 0, i * STRIP + STRIP / 2 + 16);
      if (run.values.length) marks.push(...drawStrip(scene, run, extent, left, i * STRIP));
    }
    if (hasChange) {
      context.fillStyle = theme.text;
      context.fillText(t("compare_change"), 0, CHANGE_TOP + CHANGE / 2);
      marks.push(...drawInterval(scene, answer, left, CHANGE_TOP));
    }
    return marks;
  };
  return (
    <Plot
      name="compare-steps"
      title={t("compare_picture", { unit: unitWord(answer) })}
      summary={[...runs.filter(({ values }) => values.length).map(runText), changeText(answer)]
        .filter(Boolean)
        .join(" ")}
      height={hasChange ? HEIGHT : 2 * STRIP + AXIS}
      depends={[answer, lang.value]}
      draw={draw}
      legend={
        <p class="muted">
          {t("compare_picture_hint", { share: formatPercent(LEAST_CHANGE) })}
          {extent.cut ? ` ${t("compare_cut_hint", { high: formatDuration(extent.high) })}` : ""}
        </p>
      }
    />
  );
}
