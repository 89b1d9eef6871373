import { useMemo, useState } from "preact/hooks";
import { type StepsAnswer, stepsResource } from "../../api/steps";
import { Plot } from "../../charts/Plot";
import { drawStack, type StackColumn, type StackMark, tallestColumn } from "../../charts/stacked";
import { formatInt, formatMeasured, formatPercent } from "../../format";
import { lang, t, tId } from "../../i18n";
import { indexParam, textParam } from "../../state/params";
import { showOnTimeline } from "../../state/store";
import { type Column, DataTable } from "../../ui/DataTable";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Answer, Section } from "../../ui/Section";
import { Legend } from "../../ui/Swatch";
import { Term } from "../../ui/Term";
import { median, outliers } from "./outliers";

const stepGpu = indexParam("step_gpu");
const stepSort = textParam("step_sort", "step", { ofProfile: false });

const PS_PER_MS = 1e9;
const FEW_GPUS = 8;

/** One step (or a few taken together) of one GPU. */
export interface StepRow {
  gpu: number;
  column: number;
  wallMs: number;
  lateMs: number | null;
  outlier: boolean;
  parts: { category: string; value: number }[];
}

/** The rows of a GPU, and whether each is an outlier among its own steps. */
export function rowsOf(answer: StepsAnswer, gpu: number): StepRow[] {
  const wall = answer.wall_ps[gpu] ?? [];
  // Of steps taken together the longest tells whether one of them stands out.
  const marked = outliers((answer.longest_ps[gpu] ?? wall).map((ps) => (ps === null ? null : ps / PS_PER_MS)));
  return wall.flatMap((ps, column) => {
    if (ps === null) return [];
    const late = answer.late_ps?.[gpu]?.[column] ?? null;
    const parts = answer.parts.flatMap((category) => {
      const value = (answer.parts_ps[category]?.[gpu]?.[column] ?? 0) / PS_PER_MS;
      return value > 0 ? [{ category, value }] : [];
    });
    return [
      {
        gpu,
        column,
        wallMs: ps / PS_PER_MS,
        lateMs: late === null ? null : late / PS_PER_MS,
        outlier: marked[column] ?? false,
        parts,
      },
    ];
  });
}

export function stepName(answer: StepsAnswer, column: number): string {
  const { number, count } = answer.steps[column];
  return count > 1 ? t("steps_several", { first: formatInt(number), n: formatInt(count) }) : formatInt(number);
}

function zoomTo(answer: StepsAnswer, column: number, gpu: number | null): void {
  const { start_ps, end_ps } = answer.steps[column];
  const found = gpu === null ? null : answer.gpus[gpu];
  showOnTimeline({
    host: found?.host ?? "",
    gpus: found ? [found.gpu] : [],
    startMs: start_ps / PS_PER_MS,
    endMs: end_ps / PS_PER_MS,
  });
}

const describe = (answer: StepsAnswer, row: StepRow, name: string): string =>
  [
    `${name} · ${t("step_n", { n: stepName(answer, row.column) })}: ${formatMeasured(row.wallMs)}${
      row.outlier ? ` · ${t("steps_outlier")}` : ""
    }`,
    ...row.parts.map(
      ({ category, value }) =>
        `${tId("category", category)}: ${formatMeasured(value)} (${formatPercent(value / Math.max(row.wallMs, 1e-12))})`,
    ),
    ...(row.lateMs === null ? [] : [`${t("steps_late")}: ${formatMeasured(row.lateMs)}`]),
  ].join("\n");

interface GpuStepsProps {
  answer: StepsAnswer;
  gpu: number;
  most: number;
  height: number;
  hosts: boolean;
}

function GpuSteps({ answer, gpu, most, height, hosts }: GpuStepsProps) {
  const { host, gpu: id } = answer.gpus[gpu];
  const name = gpuName({ host, id }, hosts);
  const rows = useMemo(() => rowsOf(answer, gpu), [answer, gpu]);
  const columns: StackColumn[] = rows.map((row) => ({
    label: String(answer.steps[row.column].number),
    parts: row.parts,
    marked: row.outlier,
    text: describe(answer, row, name),
  }));
  const slow = rows.filter(({ outlier }) => outlier);
  const summary = rows.length
    ? t("steps_summary", {
        n: formatInt(rows.length),
        median: formatMeasured(median(rows.map(({ wallMs }) => wallMs))),
        longest: formatMeasured(Math.max(...rows.map(({ wallMs }) => wallMs))),
        slow: slow.length ? slow.map((row) => stepName(answer, row.column)).join(", ") : t("steps_no_outlier"),
      })
    : t("steps_gpu_none");
  return (
    <Plot<StackMark>
      name={`steps-gpu-${id}`}
      title={name}
      summary={summary}
      height={height}
      depends={[answer, gpu, most, lang.value]}
      draw={(scene) => drawStack(scene, columns, most)}
      onChoose={(mark) => zoomTo(answer, rows[mark.column].column, gpu)}
      categories={answer.parts.filter((category) => category in answer.parts_ps)}
    />
  );
}

function StepTable({ answer, rows, hosts }: { answer: StepsAnswer; rows: readonly StepRow[]; hosts: boolean }) {
  const used = answer.parts.filter((category) => category in answer.parts_ps);
  const columns: Column<StepRow>[] = [
    {
      key: "step",
      label: t("steps_step"),
      value: (row) => answer.steps[row.column].number,
      cell: (row) => `${stepName(answer, row.column)}${row.outlier ? ` · ${t("steps_outlier")}` : ""}`,
    },
    {
      key: "gpu",
      label: t("gpu"),
      value: (row) => {
        const { host, gpu } = answer.gpus[row.gpu];
        return gpuName({ host, id: gpu }, hosts);
      },
    },
    {
      key: "wall",
      label: t("steps_wall"),
      hint: t("term_step"),
      csvLabel: "wall_ms",
      number: true,
      value: (row) => row.wallMs,
      cell: (row) => formatMeasured(row.wallMs),
    },
    {
      key: "late",
      label: t("steps_late"),
      hint: t("term_late"),
      csvLabel: "late_ms",
      number: true,
      value: (row) => row.lateMs,
      cell: (row) => formatMeasured(row.lateMs),
    },
    ...used.map((category): Column<StepRow> => {
      const of = (row: StepRow) => row.parts.find((part) => part.category === category)?.value ?? 0;
      return {
        key: category,
        label: tId("category", category),
        hint: tId("category_hint", category),
        csvLabel: `${category}_ms`,
        number: true,
        value: of,
        cell: (row) => (of(row) ? formatMeasured(of(row)) : "0"),
      };
    }),
  ];
  return (
    <DataTable
      name="steps"
      label={t("steps_table")}
      rows={rows}
      columns={columns}
      order={stepSort}
      onChoose={(row) => zoomTo(answer, row.column, row.gpu)}
    />
  );
}

function Steps({ answer }: { answer: StepsAnswer }) {
  const [all, setAll] = useState(false);
  const hosts = manyHosts(answer.gpus.map(({ host, gpu }) => ({ host, id: gpu })));
  const chosen = stepGpu.value !== null && stepGpu.value < answer.gpus.length ? stepGpu.value : null;
  const gpus = chosen === null ? answer.gpus.map((_, i) => i) : [chosen];
  const shown = all ? gpus : gpus.slice(0, FEW_GPUS);
  const rows = useMemo(() => gpus.flatMap((gpu) => rowsOf(answer, gpu)), [answer, chosen]);
  const most = useMemo(() => tallestColumn(rows.map(({ parts }) => ({ label: "", text: "", parts }))), [rows]);
  if (!answer.steps.length || !answer.gpus.length) return <p class="state">{t("steps_missing")}</p>;
  const slow = [...new Set(rows.filter(({ outlier }) => outlier).map(({ column }) => column))].sort((a, b) => a - b);
  return (
    <>
      <p class="sentence">
        {t("steps_count", {
          n: formatInt(answer.total_steps),
          median: formatMeasured(median(rows.map((row) => row.wallMs / answer.steps[row.column].count))),
        })}{" "}
        {slow.length ? t("steps_slow", { list: slow.map((column) => stepName(answer, column)).join(", ") }) : ""}
        {answer.source === "inferred" && answer.confidence !== null
          ? ` ${t("steps_inferred_confidence", { share: formatPercent(answer.confidence) })}`
          : ""}
        {answer.steps_per_column > 1 ? ` ${t("steps_per_column", { n: formatInt(answer.steps_per_column) })}` : ""}
      </p>
      <div class="filters">
        {answer.gpus.length > 1 ? (
          <label>
            {t("gpu")}
            <select
              value={chosen === null ? "" : String(chosen)}
              onChange={(event) => {
                const { value } = event.currentTarget;
                stepGpu.value = value === "" ? null : Number(value);
              }}
            >
              <option value="">{t("gpus_every")}</option>
              {answer.gpus.map(({ host, gpu, lane }, i) => (
                <option key={lane} value={String(i)}>
                  {gpuName({ host, id: gpu }, hosts)}
                </option>
              ))}
            </select>
          </label>
        ) : null}
        <span class="muted">
          {t("steps_hint")} <Term text={t("term_outlier")}>▼ {t("steps_outlier")}</Term>
        </span>
      </div>
      <Legend categories={answer.parts.filter((category) => category in answer.parts_ps)} />
      {shown.map((gpu) => (
        <GpuSteps
          key={gpu}
          answer={answer}
          gpu={gpu}
          most={most}
          height={gpus.length === 1 ? 300 : 150}
          hosts={hosts}
        />
      ))}
      {gpus.length > FEW_GPUS ? (
        <button type="button" class="quiet" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t("show_fewer") : t("show_all", { n: formatInt(gpus.length) })}
        </button>
      ) : null}
      <h3 class="apart">{t("steps_table")}</h3>
      <StepTable answer={answer} rows={rows} hosts={hosts} />
    </>
  );
}

/** Where the time of each step of each GPU went. */
export function StepsView() {
  return (
    <Section id="steps" title={t("view_steps")} lead={t("steps_lead")}>
      <Answer resource={stepsResource} label={t("loading_steps")}>
        {(answer) => <Steps answer={answer} />}
      </Answer>
    </Section>
  );
}
