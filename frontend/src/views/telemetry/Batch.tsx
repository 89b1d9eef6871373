import type { Sweep, SweepPoint } from "../../api/telemetry";
import { sweepsResource } from "../../api/telemetry";
import { niceStep } from "../../charts/axis";
import { type Mark, Plot, type Scene } from "../../charts/Plot";
import { formatBytes, formatInt, formatMeasured, formatNumber, formatPercent, shorten } from "../../format";
import { lang, t, tId } from "../../i18n";
import { useResource } from "../../state/resource";
import { type Column, DataTable } from "../../ui/DataTable";
import { RichText } from "../../ui/RichText";
import { fittedRate } from "./data";
import { sweepChosen, sweepSort } from "./state";
import { moment } from "./words";

const HEIGHT = 280;
const LEFT = 64;
const BOTTOM = 40;
const TOP = 24;

const problemOf = (point: SweepPoint): string =>
  point.problem ? shorten(tId("batch_problem", point.problem), 160) : "";

const describe = (sweep: Sweep, point: SweepPoint): string =>
  [
    t("batch_size", { n: formatInt(point.batch_size) }) +
      (point.batch_size === sweep.recommended ? ` · ${t("batch_recommended")}` : ""),
    point.samples_per_s === null
      ? problemOf(point)
      : `${formatNumber(point.samples_per_s)} ${t("samples_per_s")} · ${formatMeasured(point.step_ms)}`,
    point.peak_bytes === null ? "" : t("batch_peak", { bytes: formatBytes(point.peak_bytes) }),
  ]
    .filter(Boolean)
    .join("\n");

function draw({ context, width, height, theme }: Scene, sweep: Sweep): Mark[] {
  const bottom = height - BOTTOM;
  const right = width - 20;
  const sizes = sweep.points.map(({ batch_size }) => batch_size);
  const [first, last] = [Math.log2(Math.max(1, Math.min(...sizes))), Math.log2(Math.max(2, ...sizes))];
  const fit = sweep.fixed_ms !== null && sweep.per_sample_ms !== null;
  const rate = (batch: number) => fittedRate(batch, sweep.fixed_ms ?? 0, sweep.per_sample_ms ?? 0);
  const measured = sweep.points.flatMap(({ samples_per_s }) => (samples_per_s === null ? [] : [samples_per_s]));
  const largest = sweep.points.reduce(
    (most, one) => (one.samples_per_s === null ? most : Math.max(most, one.batch_size)),
    1,
  );
  const most = Math.max(1e-9, ...measured, ...(fit ? [rate(largest)] : [])) * 1.08;
  const toX = (batch: number) =>
    LEFT + 14 + ((Math.log2(Math.max(batch, 1)) - first) / Math.max(last - first, 1e-9)) * (right - LEFT - 28);
  const toY = (value: number) => bottom - (value / most) * (bottom - TOP);
  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.lineWidth = 1;
  context.beginPath();
  context.textAlign = "end";
  const step = niceStep(most, 5);
  for (let value = 0; value <= most; value += step) {
    const y = Math.round(toY(value)) + 0.5;
    context.moveTo(LEFT, y);
    context.lineTo(right, y);
    context.fillText(formatNumber(value), LEFT - 8, y);
  }
  context.stroke();
  context.textAlign = "center";
  let free = LEFT;
  for (const size of sizes) {
    const label = formatInt(size);
    const half = context.measureText(label).width / 2;
    if (toX(size) - half < free) continue;
    context.fillText(label, toX(size), bottom + 12);
    free = toX(size) + half + 8;
  }
  context.fillText(t("batch_axis"), (LEFT + right) / 2, height - 8);
  context.textAlign = "start";
  context.fillText(t("samples_per_s"), 0, 8);
  if (sweep.recommended !== null) {
    const x = toX(sweep.recommended);
    context.strokeStyle = theme.focus;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(x, TOP);
    context.lineTo(x, bottom);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = theme.focus;
    const words = t("batch_recommended");
    context.textAlign = x > width / 2 ? "end" : "start";
    context.fillText(words, x + (x > width / 2 ? -6 : 6), TOP - 10);
    context.textAlign = "start";
  }
  if (fit) {
    context.strokeStyle = theme.muted;
    context.lineWidth = 1.5;
    context.beginPath();
    const [from, to] = [first, Math.log2(largest)];
    for (let i = 0; i <= 80; i++) {
      const batch = 2 ** (from + ((to - from) * i) / 80);
      if (i === 0) context.moveTo(toX(batch), toY(rate(batch)));
      else context.lineTo(toX(batch), toY(rate(batch)));
    }
    context.stroke();
  }
  return sweep.points.map((point) => {
    const x = toX(point.batch_size);
    const y = point.samples_per_s === null ? bottom - 10 : toY(point.samples_per_s);
    context.lineWidth = 2;
    if (point.samples_per_s === null) {
      context.strokeStyle = theme.accent;
      context.beginPath();
      context.moveTo(x - 5, y - 5);
      context.lineTo(x + 5, y + 5);
      context.moveTo(x + 5, y - 5);
      context.lineTo(x - 5, y + 5);
      context.stroke();
    } else {
      context.fillStyle = theme.focus;
      context.beginPath();
      context.arc(x, y, point.batch_size === sweep.recommended ? 7 : 4.5, 0, 2 * Math.PI);
      context.fill();
    }
    return { x: x - 10, y: y - 10, width: 20, height: 20, text: describe(sweep, point) };
  });
}

function sentenceOf(sweep: Sweep): string {
  const parts: string[] = [];
  const best = Math.max(0, ...sweep.points.map(({ samples_per_s }) => samples_per_s ?? 0));
  const chosen = sweep.points.find(({ batch_size }) => batch_size === sweep.recommended);
  if (chosen?.samples_per_s)
    parts.push(
      t("batch_sentence", {
        n: formatInt(chosen.batch_size),
        rate: formatNumber(chosen.samples_per_s),
        share: formatPercent(chosen.samples_per_s / best),
      }),
    );
  else parts.push(t("batch_none"));
  if (sweep.fixed_ms !== null && sweep.per_sample_ms !== null)
    parts.push(t("batch_fit", { fixed: formatMeasured(sweep.fixed_ms), each: formatMeasured(sweep.per_sample_ms) }));
  const failed = sweep.points.find(({ samples_per_s }) => samples_per_s === null);
  if (failed) parts.push(t("batch_failed", { n: formatInt(failed.batch_size), why: problemOf(failed) }));
  return parts.join(" ");
}

function Curve({ sweep }: { sweep: Sweep }) {
  const sentence = sentenceOf(sweep);
  const columns: Column<SweepPoint>[] = [
    {
      key: "batch",
      label: t("batch_axis"),
      csvLabel: "batch_size",
      number: true,
      value: (point) => point.batch_size,
      cell: (point) =>
        `${formatInt(point.batch_size)}${point.batch_size === sweep.recommended ? ` · ${t("batch_recommended")}` : ""}`,
    },
    {
      key: "rate",
      label: t("samples_per_s"),
      csvLabel: "samples_per_s",
      number: true,
      value: (point) => point.samples_per_s,
      cell: (point) => formatNumber(point.samples_per_s),
    },
    {
      key: "step",
      label: t("batch_step"),
      csvLabel: "step_ms",
      number: true,
      value: (point) => point.step_ms,
      cell: (point) => formatMeasured(point.step_ms),
    },
    {
      key: "peak",
      label: t("batch_memory"),
      hint: t("batch_memory_hint"),
      csvLabel: "peak_bytes",
      number: true,
      value: (point) => point.peak_bytes,
      cell: (point) => formatBytes(point.peak_bytes),
    },
    { key: "problem", label: t("batch_outcome"), value: (point) => problemOf(point) || t("batch_fitted") },
  ];
  return (
    <>
      <Plot<Mark>
        name="batch-size"
        title={t("batch_chart")}
        summary={sentence}
        height={HEIGHT}
        depends={[sweep, lang.value]}
        draw={(scene) => draw(scene, sweep)}
        legendText={t("batch_key")}
        legend={<p class="hint muted">{t("batch_key")}</p>}
      />
      <p class="sentence">{sentence}</p>
      <DataTable
        name="batch-size"
        label={t("batch_table")}
        rows={sweep.points}
        columns={columns}
        order={sweepSort}
        tallest={360}
      />
    </>
  );
}

/** Throughput over the batch size, as `gpu-doctor batch` measured it. */
export function BatchSizes() {
  const { data } = useResource(sweepsResource);
  const sweeps = data?.sweeps ?? [];
  if (!data) return null;
  if (!sweeps.length)
    return (
      <p class="muted">
        <RichText text={t("batch_missing")} />
      </p>
    );
  const sweep = sweeps[sweepChosen.value ?? 0] ?? sweeps[0];
  return (
    <>
      {sweeps.length > 1 ? (
        <div class="filters">
          <label>
            {t("batch_sweep")}
            <select
              value={String(sweeps.indexOf(sweep))}
              onChange={(event) => {
                sweepChosen.value = Number(event.currentTarget.value) || null;
              }}
            >
              {sweeps.map(({ run, unix_ms }, i) => (
                <option key={`${run}|${unix_ms}`} value={String(i)}>
                  {moment(unix_ms)} · {shorten(run, 60)}
                </option>
              ))}
            </select>
          </label>
        </div>
      ) : (
        <p class="muted">
          {moment(sweep.unix_ms)} · {shorten(sweep.run, 120)}
        </p>
      )}
      {sweep.points.length ? <Curve sweep={sweep} /> : <p class="state">{t("batch_none")}</p>}
    </>
  );
}
