import type { HistoryAnswer } from "../../api/history";
import { makeAxis } from "../../charts/axis";
import { fitText } from "../../charts/canvas";
import type { Mark, Scene } from "../../charts/Plot";
import { lineStyle } from "../../charts/theme";
import { isCompared, levelsOf } from "./state";

export interface SessionMark extends Mark {
  session: number;
}

const LEFT = 64;
const TOP = 22;
const BOTTOM = 22;

/** The mean step of each session in order of time, the levels it keeps, and where it changed. */
export function drawTrend(
  { context, width, height, theme }: Scene,
  answer: HistoryAnswer,
  labels: readonly string[],
  texts: readonly string[],
  chosen: number,
): SessionMark[] {
  const { sessions } = answer;
  // One that is not compared may be of another model: it must not squeeze those that are.
  const scaled = sessions.some(isCompared) ? sessions.filter(isCompared) : sessions;
  const most = Math.max(...scaled.map(({ step_ms }) => step_ms ?? 0), 1e-9) * 1.08;
  const [top, bottom] = [TOP, height - BOTTOM];
  const pitch = (width - LEFT - 8) / Math.max(1, sessions.length);
  const toX = (i: number) => LEFT + (i + 0.5) * pitch;
  const toY = (ms: number) => bottom - (ms / most) * (bottom - top);
  context.lineWidth = 1;
  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.textAlign = "end";
  context.beginPath();
  for (const tick of makeAxis(0, most, Math.max(2, (bottom - top) / 40)).ticks) {
    const y = Math.round(toY(tick.at)) + 0.5;
    context.moveTo(LEFT - 4, y);
    context.lineTo(width, y);
    context.fillText(tick.label, LEFT - 8, y);
  }
  context.stroke();
  context.textAlign = "center";
  let free = -1;
  for (const [i, label] of labels.entries()) {
    const text = fitText(context, label, Math.max(80, pitch - 8));
    const half = context.measureText(text).width / 2;
    if (toX(i) - half <= free || toX(i) + half > width + 2) continue;
    context.fillText(text, toX(i), bottom + BOTTOM / 2);
    free = toX(i) + half + 8;
  }
  // The levels under the points.
  context.strokeStyle = theme.focus;
  context.lineWidth = 6;
  context.globalAlpha = 0.25;
  for (const { from, to, ms } of levelsOf(answer)) {
    context.beginPath();
    context.moveTo(toX(from) - pitch / 2 + 2, toY(ms));
    context.lineTo(toX(to) + pitch / 2 - 2, toY(ms));
    context.stroke();
  }
  context.globalAlpha = 1;
  for (const [n, change] of answer.changes.entries()) {
    const x = Math.round(toX(change.session_index) - pitch / 2) + 0.5;
    context.strokeStyle = change.is_regression ? theme.accent : lineStyle(2, theme.dark).color;
    context.fillStyle = context.strokeStyle;
    context.lineWidth = 2;
    context.setLineDash(change.metric === "step" ? [] : [4, 3]);
    context.beginPath();
    context.moveTo(x, TOP - 4);
    context.lineTo(x, bottom);
    context.stroke();
    context.setLineDash([]);
    // Changes of one session stand side by side.
    const before = answer.changes.slice(0, n).filter((other) => other.session_index === change.session_index).length;
    context.fillText(`${change.is_regression ? "▲" : "▼"}${n + 1}`, x + before * 26, 9);
  }
  const { color } = lineStyle(0, theme.dark);
  context.strokeStyle = color;
  context.lineWidth = 1.5;
  context.beginPath();
  let drawing = false;
  for (const [i, session] of sessions.entries()) {
    const { step_ms } = session;
    if (step_ms === null || !isCompared(session)) continue;
    if (drawing) context.lineTo(toX(i), toY(step_ms));
    else context.moveTo(toX(i), toY(step_ms));
    drawing = true;
  }
  context.stroke();
  const marks: SessionMark[] = [];
  for (const [i, { step_ms, problem }] of sessions.entries()) {
    const y = step_ms === null ? bottom : toY(step_ms);
    if (step_ms !== null && step_ms > most) {
      context.fillStyle = theme.muted;
      context.fillText("↑", toX(i), top + 6);
    } else if (step_ms === null) {
      context.fillStyle = theme.muted;
      context.fillText("×", toX(i), bottom - 6);
    } else {
      context.beginPath();
      context.arc(toX(i), y, i === chosen ? 6 : 4, 0, 2 * Math.PI);
      context.fillStyle = problem ? theme.surface : color;
      context.strokeStyle = problem ? theme.muted : i === chosen ? theme.text : color;
      context.lineWidth = 2;
      context.fill();
      context.stroke();
    }
    marks.push({ x: toX(i) - pitch / 2, y: top, width: pitch, height: bottom - top, text: texts[i], session: i });
  }
  context.textAlign = "start";
  return marks;
}
