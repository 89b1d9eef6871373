import type { ComponentChildren } from "preact";
import {
  type Curve,
  fetchStaircase,
  type KernelRow,
  type KernelsAnswer,
  type Knob,
  type StaircaseAnswer,
} from "../../api/kernels";
import type { ProfileId } from "../../api/types";
import { niceStep } from "../../charts/axis";
import { familyCategory } from "../../charts/families";
import { type Mark, Plot, type Scene } from "../../charts/Plot";
import { formatBytes, formatInt, formatMeasured, formatNumber, formatPercent, fullText, shorten } from "../../format";
import { lang, t, tId } from "../../i18n";
import { Remote } from "../../state/remote";
import { view } from "../../state/store";
import { useLoad } from "../../state/useLoad";
import { manyHosts } from "../../ui/gpu";
import { LoadedView } from "../../ui/LoadedView";
import { Term } from "../../ui/Term";
import { findQuery } from "../timeline/state";
import { dims, rowGpus, searchWords, sharedBytes } from "./words";

const staircase = new Remote<StaircaseAnswer>();

const KNOBS: readonly Knob[] = ["registers", "shared_bytes", "block_threads"];
const HEIGHT = 190;
const LEFT = 46;
const BOTTOM = 26;
const TOP = 12;

export const showKnob = (knob: Knob, value: number): string =>
  knob === "shared_bytes" ? formatBytes(value) : formatInt(value);

/** What a change of the kernel's launch is called: "registers 96 → 56". */
export const changeWords = (changes: readonly { what: Knob; from: number; to: number }[]): string =>
  changes
    .map(({ what, from, to }) => `${tId("knob", what)} ${showKnob(what, from)} → ${showKnob(what, to)}`)
    .join(" + ");

interface StepMark extends Mark {
  index: number;
}

function drawCurve(
  { context, width, height, theme }: Scene,
  curve: Curve,
  knob: Knob,
  now: number,
  next: number | undefined,
): StepMark[] {
  const bottom = height - BOTTOM;
  const right = width - 10;
  const [first, last] = [curve.x[0], curve.x[curve.x.length - 1]];
  const toX = (value: number) => LEFT + ((value - first) / Math.max(last - first, 1)) * (right - LEFT);
  const toY = (share: number) => bottom - share * (bottom - TOP);
  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.lineWidth = 1;
  context.beginPath();
  context.textAlign = "end";
  for (const share of [0, 0.5, 1]) {
    const y = Math.round(toY(share)) + 0.5;
    context.moveTo(LEFT, y);
    context.lineTo(right, y);
    context.fillText(formatPercent(share), LEFT - 6, y);
  }
  context.stroke();
  context.textAlign = "center";
  const unit = knob === "shared_bytes" ? 1024 : 1;
  const step = niceStep((last - first) / unit, Math.max(2, (right - LEFT) / 70)) * unit;
  for (let value = Math.ceil(first / step) * step; value <= last; value += step) {
    const x = toX(value);
    if (x > LEFT + 8 && x < right - 8) context.fillText(showKnob(knob, value), x, bottom + BOTTOM / 2);
  }
  context.textAlign = "start";
  // Each value holds until the next one.
  context.strokeStyle = theme.focus;
  context.lineWidth = 2;
  context.beginPath();
  const marks: StepMark[] = [];
  for (const [i, value] of curve.x.entries()) {
    const left = toX(value);
    const end = i + 1 < curve.x.length ? toX(curve.x[i + 1]) : right;
    const y = toY(curve.occupancy[i]);
    if (i === 0) context.moveTo(left, y);
    else context.lineTo(left, y);
    context.lineTo(end, y);
    const limiter = curve.limiter[i];
    marks.push({
      x: left,
      y: TOP,
      width: Math.max(end - left, 1),
      height: bottom - TOP,
      index: i,
      text: [
        `${tId("knob", knob)} ${showKnob(knob, value)}: ${t("occupancy")} ${formatPercent(curve.occupancy[i])}`,
        limiter ? t("limited_by", { what: tId("limiter", limiter) }) : t("staircase_unlimited"),
      ].join("\n"),
    });
  }
  context.stroke();
  const occupancyAt = (value: number): number => {
    const index = curve.x.findLastIndex((x) => x <= value);
    return curve.occupancy[Math.max(index, 0)] ?? 0;
  };
  const dot = (value: number, filled: boolean) => {
    context.beginPath();
    context.arc(toX(value), toY(occupancyAt(value)), 5, 0, 2 * Math.PI);
    context.fillStyle = filled ? theme.accent : theme.surface;
    context.fill();
    context.strokeStyle = theme.accent;
    context.stroke();
  };
  dot(Math.min(Math.max(now, first), last), true);
  if (next !== undefined) dot(Math.min(Math.max(next, first), last), false);
  return marks;
}

function Staircase({ answer, row }: { answer: StaircaseAnswer; row: KernelRow }) {
  const { now, curves, next } = answer;
  if (!now || !curves) return <p class="state">{t("staircase_unknown")}</p>;
  const better = next ?? [];
  return (
    <>
      <div class="staircases">
        {KNOBS.map((knob) => {
          const curve = curves[knob];
          if (!curve?.x.length) return null;
          const to = better.find(({ changes }) => changes.length === 1 && changes[0].what === knob)?.changes[0].to;
          return (
            <Plot<StepMark>
              key={knob}
              name={`staircase-${knob}`}
              title={t(`staircase_${knob}`)}
              summary={t("staircase_summary", {
                knob: tId("knob", knob),
                now: showKnob(knob, now[knob]),
                occupancy: formatPercent(now.occupancy),
                low: formatPercent(Math.min(...curve.occupancy)),
                high: formatPercent(Math.max(...curve.occupancy)),
              })}
              height={HEIGHT}
              depends={[answer, lang.value]}
              draw={(scene) => drawCurve(scene, curve, knob, now[knob], to)}
            />
          );
        })}
      </div>
      <p class="hint muted">{t("staircase_key")}</p>
      <p class="sentence">
        {now.limiter
          ? t("staircase_now", { occupancy: formatPercent(now.occupancy), what: tId("limiter", now.limiter) })
          : t("staircase_full", { occupancy: formatPercent(now.occupancy) })}{" "}
        {row.tensor_cores === "used" && now.occupancy < 0.5 ? t("staircase_tensor") : ""}
      </p>
      {better.length ? (
        <ul>
          {better.map(({ changes, occupancy }) => (
            <li key={changeWords(changes)}>
              {t("staircase_next", { change: changeWords(changes), occupancy: formatPercent(occupancy) })}
            </li>
          ))}
        </ul>
      ) : null}
    </>
  );
}

function Fact({ label, hint, children }: { label: string; hint?: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{hint ? <Term text={hint}>{label}</Term> : label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

interface ChosenProps {
  answer: KernelsAnswer;
  row: KernelRow;
  profile: ProfileId;
}

/** One kernel: its launch, how it fills the GPU, and what would raise its occupancy. */
export function Chosen({ answer, row, profile }: ChosenProps) {
  const state = useLoad(staircase, profile, String(row.id), (options) => fetchStaircase(profile, row.id, options));
  const hosts = manyHosts(answer.devices);
  const find = () => {
    findQuery.value = searchWords(row.name);
    view.value = "timeline";
  };
  return (
    <div class="story" id="kernel-chosen">
      <div class="story-head">
        <h4 class="kernel-name" title={fullText(row.name)}>
          {shorten(row.name, 160)}
        </h4>
        <button type="button" class="quiet" onClick={find}>
          {t("kernel_find")}
        </button>
      </div>
      <dl class="facts">
        <Fact label={t("kernel_total")} hint={t("kernel_total_hint")}>
          {formatMeasured(row.total_ms)} · {formatPercent(row.share)}
        </Fact>
        <Fact label={t("kernel_calls")} hint={t("kernel_calls_hint")}>
          {formatInt(row.calls)} × {formatMeasured(row.mean_us / 1000)}
        </Fact>
        <Fact label={t("gpu")}>{rowGpus(row, answer.devices, hosts)}</Fact>
        <Fact label={t("kernel_family")} hint={t("kernel_family_hint")}>
          {tId("category", familyCategory(row.family))}
        </Fact>
        <Fact label={t("grid")} hint={t("grid_hint")}>
          {dims(row.grid)}
        </Fact>
        <Fact label={t("block")} hint={t("kernel_block_hint")}>
          {dims(row.block)}
        </Fact>
        <Fact label={t("kernel_registers")} hint={t("kernel_registers_hint")}>
          {formatInt(row.registers)}
        </Fact>
        <Fact label={t("kernel_shared")} hint={t("kernel_shared_hint")}>
          {formatBytes(sharedBytes(row))}
        </Fact>
        <Fact label={t("occupancy")} hint={t("occupancy_hint")}>
          {formatPercent(row.occupancy)}
          {row.occupancy_differs ? ` · ${t("kernel_recorded", { value: formatPercent(row.recorded_occupancy) })}` : ""}
        </Fact>
        <Fact label={t("kernel_achieved")} hint={t("kernel_achieved_hint")}>
          {formatPercent(row.achieved_occupancy)}
        </Fact>
        <Fact label={t("kernel_waves")} hint={t("kernel_waves_hint")}>
          {formatNumber(row.waves)}
          {row.tail === null ? "" : ` · ${t("kernel_tail_of", { share: formatPercent(row.tail) })}`}
        </Fact>
        <Fact label={t("kernel_sm_share")} hint={t("kernel_sm_share_hint")}>
          {formatPercent(row.sm_share)}
        </Fact>
        <Fact label={t("kernel_tensor")} hint={t("kernel_tensor_hint")}>
          {row.tensor_cores ? tId("category", `tensor_${row.tensor_cores}`) : "–"}
          {row.data_type ? ` · ${row.data_type}` : ""}
        </Fact>
        {row.bound ? (
          <Fact label={t("kernel_bound")} hint={t("kernel_bound_hint")}>
            {tId("bound", row.bound)}
          </Fact>
        ) : null}
        {row.op ? (
          <Fact label={t("tip_op")}>
            <span title={fullText(row.op)}>{shorten(row.op, 90)}</span>
          </Fact>
        ) : null}
      </dl>
      <LoadedView state={state} label={t("loading_kernels")}>
        {(found) => (found.kernel === row.id ? <Staircase answer={found} row={row} /> : null)}
      </LoadedView>
    </div>
  );
}
