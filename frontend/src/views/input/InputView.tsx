import { type InputAnswer, type InputPipeline, type InputStage, inputResource } from "../../api/input";
import { Plot } from "../../charts/Plot";
import { drawShares, type ShareMark, type ShareRow, sharesHeight } from "../../charts/shares";
import { formatBytes, formatInt, formatMeasured, formatPercent, shorten } from "../../format";
import { lang, plural, t, tId } from "../../i18n";
import { indexParam, textParam } from "../../state/params";
import { view } from "../../state/store";
import { type Column, DataTable, titleOf } from "../../ui/DataTable";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Icon } from "../../ui/Icon";
import { Answer, Section } from "../../ui/Section";
import { Term } from "../../ui/Term";
import { gapCause } from "../gaps/state";
import { atOnce, Graph } from "./Graph";
import { heldShare, type Pace, paceOf } from "./layout";

const chosenPipeline = indexParam("pipeline");
const chosenStage = indexParam("stage");
const stageSort = textParam("stage_sort", "order", { ofProfile: false });

const FEW = 16;

/** How much of each GPU's window passed waiting for batches. */
function Waits({ answer }: { answer: InputAnswer }) {
  const gpus = answer.gpus.filter(({ wall_ms }) => wall_ms).slice(0, FEW);
  if (!gpus.length) return <p class="muted">{t("input_no_gpus")}</p>;
  const hosts = manyHosts(gpus.map(({ host, gpu }) => ({ host, id: gpu })));
  const rows = gpus.map((one): ShareRow => {
    const name = gpuName({ host: one.host, id: one.gpu }, hosts);
    const [wall, input] = [one.wall_ms ?? 0, one.input_ms ?? 0];
    return {
      label: name,
      whole: wall,
      parts: [{ category: "input", value: input }],
      text: `${name}\n${t("category_input")}: ${formatMeasured(input)} (${formatPercent(input / wall)})`,
    };
  });
  const shares = gpus.map(({ wall_ms, input_ms }) => (input_ms ?? 0) / (wall_ms ?? 1));
  const [low, high] = [formatPercent(Math.min(...shares)), formatPercent(Math.max(...shares))];
  const sentence = low === high ? t("input_waits_same", { share: low }) : t("input_waits_sentence", { low, high });
  return (
    <>
      <Plot<ShareMark>
        name="input-waits"
        title={t("input_waits_title")}
        summary={sentence}
        height={sharesHeight(rows.length)}
        depends={[answer, lang.value]}
        draw={(scene) => drawShares(scene, rows, hosts ? 190 : 70)}
        categories={["input"]}
      />
      <p class="sentence">
        {sentence} {answer.gpus.length > gpus.length ? plural("input_more_gpus", answer.gpus.length - gpus.length) : ""}
      </p>
    </>
  );
}

export function pipelineSentence(pipeline: InputPipeline, pace: Pace, held: number | null): string {
  const stage = pipeline.limiting === null ? null : pipeline.stages[pipeline.limiting];
  const parts: string[] = [];
  if (!stage) parts.push(t("input_sentence_unknown"));
  else {
    const facts = { stage: shorten(stage.name, 60), used: formatPercent(stage.utilization) };
    parts.push(t(pace === "limits" ? "input_sentence_limits" : "input_sentence_slowest", facts));
    if (stage.per_element_ms)
      parts.push(
        t("input_sentence_each", {
          ms: formatMeasured(stage.per_element_ms),
          n: formatInt(stage.parallelism ?? stage.concurrency),
        }),
      );
  }
  if (held !== null) parts.push(t("input_sentence_held", { share: formatPercent(held) }));
  if (pipeline.fetches)
    parts.push(
      t("input_sentence_fetch", {
        n: formatInt(pipeline.fetches),
        ms: formatMeasured(pipeline.fetch_ms / pipeline.fetches),
      }),
    );
  if (!pipeline.prefetched) parts.push(t("input_sentence_no_prefetch"));
  if (pipeline.cpu_full)
    parts.push(
      t("input_sentence_cpu", { share: formatPercent(pipeline.cpu_share), n: formatInt(pipeline.cpu_budget) }),
    );
  return parts.join(" ");
}

function Stages({ pipeline, pace }: { pipeline: InputPipeline; pace: Pace }) {
  const { stages } = pipeline;
  const columns: Column<InputStage>[] = [
    {
      key: "name",
      label: t("input_stage"),
      value: (stage) => stage.name,
      cell: (stage) =>
        `${shorten(stage.name, 56)}${stages.indexOf(stage) === pipeline.limiting ? ` · ${t(`input_pace_${pace}`)}` : ""}`,
      title: (stage) => titleOf(stage.name),
    },
    {
      key: "order",
      label: t("input_order"),
      hint: t("input_order_hint"),
      // From small to large: from the training back to the source.
      value: (stage) => stages.indexOf(stage),
      cell: (stage) => formatInt(stages.indexOf(stage) + 1),
    },
    { key: "role", label: t("input_role"), value: (stage) => tId("role", stage.role), csv: (stage) => stage.role },
    {
      key: "utilization",
      label: t("input_utilization"),
      hint: t("input_utilization_hint"),
      number: true,
      value: (stage) => stage.utilization,
      cell: (stage) => (
        <span class="occupancy">
          <span class="meter" aria-hidden="true">
            <span style={{ width: `${Math.min(100, stage.utilization * 100)}%` }} />
          </span>
          {formatPercent(stage.utilization)}
        </span>
      ),
    },
    {
      key: "busy",
      label: t("input_busy"),
      hint: t("input_busy_hint"),
      csvLabel: "busy_ms",
      number: true,
      value: (stage) => stage.busy_ms,
      cell: (stage) => formatMeasured(stage.busy_ms),
    },
    {
      key: "each",
      label: t("input_per_element"),
      hint: t("input_per_element_hint"),
      csvLabel: "per_element_ms",
      number: true,
      value: (stage) => stage.per_element_ms,
      cell: (stage) => formatMeasured(stage.per_element_ms),
    },
    {
      key: "calls",
      label: t("input_elements"),
      hint: t("input_elements_hint"),
      number: true,
      value: (stage) => stage.calls,
      cell: (stage) => formatInt(stage.calls),
    },
    {
      key: "parallelism",
      label: t("input_parallelism"),
      hint: t("input_parallelism_hint"),
      value: (stage) => stage.parallelism ?? stage.concurrency,
      cell: (stage) => (stage.role === "glue" ? "–" : atOnce(stage)),
    },
    {
      key: "buffer",
      label: t("input_buffer"),
      hint: t("input_buffer_hint"),
      number: true,
      value: (stage) => stage.buffer,
      cell: (stage) => formatInt(stage.buffer),
    },
    {
      key: "waited",
      label: t("input_waited"),
      hint: t("input_waited_hint"),
      csvLabel: "waited_ms",
      number: true,
      value: (stage) => (stage.background ? stage.waited_ms : null),
      cell: (stage) => (stage.background ? formatMeasured(stage.waited_ms) : "–"),
    },
    {
      key: "threads",
      label: t("input_threads"),
      value: (stage) => stage.threads.join(", ") || null,
      cell: (stage) =>
        stage.threads.length
          ? `${shorten(stage.threads[0], 32)}${stage.thread_count > 1 ? ` ${t("and_more", { n: formatInt(stage.thread_count - 1) })}` : ""}`
          : "–",
      title: (stage) => titleOf(stage.threads.join("\n")),
    },
    { key: "python", label: "calls_python", csvOnly: true, value: (stage) => String(stage.calls_python) },
  ];
  return (
    <DataTable
      name="input"
      label={t("input_table")}
      rows={stages}
      columns={columns}
      order={stageSort}
      onChoose={(stage) => {
        chosenStage.value = stages.indexOf(stage);
      }}
      chosen={(stage) => stages.indexOf(stage) === chosenStage.value}
      tallest={420}
    />
  );
}

const pipelineName = ({ host, source, stages }: InputPipeline, hosts: boolean): string =>
  [
    hosts && host ? shorten(host, 40) : "",
    source === "tf_data" ? `tf.data · ${plural("input_stages", stages.length)}` : shorten(stages[0]?.name ?? "", 60),
  ]
    .filter(Boolean)
    .join(" · ");

function Input({ answer }: { answer: InputAnswer }) {
  const { pipelines } = answer;
  if (!pipelines.length)
    return (
      <>
        <Waits answer={answer} />
        <p class="state">{t("input_missing")}</p>
      </>
    );
  const pipeline = pipelines[chosenPipeline.value ?? 0] ?? pipelines[0];
  const walls = new Map(answer.gpus.map(({ lane, wall_ms }) => [lane, wall_ms]));
  const held = heldShare(pipeline, walls);
  const pace = paceOf(pipeline, held);
  const sentence = pipelineSentence(pipeline, pace, held);
  const hosts = new Set(pipelines.map(({ host }) => host)).size > 1;
  return (
    <>
      <Waits answer={answer} />
      <h3 class="apart">{t("input_pipelines")}</h3>
      {pipelines.length > 1 ? (
        <div class="filters">
          <label>
            {t("input_pipeline")}
            <select
              value={String(pipelines.indexOf(pipeline))}
              onChange={(event) => {
                chosenPipeline.value = Number(event.currentTarget.value) || null;
                chosenStage.value = null;
              }}
            >
              {pipelines.map((one, i) => (
                <option key={`${i}`} value={String(i)}>
                  {pipelineName(one, hosts)}
                </option>
              ))}
            </select>
          </label>
          {answer.truncated ? (
            <span class="muted">{t("input_truncated", { n: formatInt(pipelines.length) })}</span>
          ) : null}
        </div>
      ) : (
        <p class="muted">{pipelineName(pipeline, Boolean(pipeline.host))}</p>
      )}
      <Graph
        pipeline={pipeline}
        pace={pace}
        held={held}
        summary={`${pipeline.stages
          .map(({ name }) => shorten(name, 40))
          .reverse()
          .join(" → ")}. ${sentence}`}
        choose={(stage) => {
          chosenStage.value = stage;
        }}
      />
      <p class="sentence">{sentence}</p>
      <dl class="facts">
        <div>
          <dt>
            <Term text={t("input_fetch_hint")}>{t("input_fetches")}</Term>
          </dt>
          <dd>
            {formatInt(pipeline.fetches)} · {formatMeasured(pipeline.fetch_ms)}
          </dd>
        </div>
        {pipeline.element_bytes === null ? null : (
          <div>
            <dt>
              <Term text={t("input_size_hint")}>{t("input_size")}</Term>
            </dt>
            <dd>{formatBytes(pipeline.element_bytes)}</dd>
          </div>
        )}
        {pipeline.cpu_budget === null ? null : (
          <div>
            <dt>
              <Term text={t("input_cpu_hint")}>{t("input_cpu")}</Term>
            </dt>
            <dd>
              {t("input_cpu_of", { share: formatPercent(pipeline.cpu_share), n: formatInt(pipeline.cpu_budget) })}
            </dd>
          </div>
        )}
        <div>
          <dt>{t("input_consumers")}</dt>
          <dd>{shorten(pipeline.consumers.join(", "), 120) || "–"}</dd>
        </div>
      </dl>
      <p>
        <button
          type="button"
          class="quiet"
          onClick={() => {
            gapCause.value = "input";
            view.value = "gaps";
          }}
        >
          <Icon name="next" />
          {t("input_show")}
        </button>
      </p>
      <h3 class="apart">{t("input_table")}</h3>
      <Stages pipeline={pipeline} pace={pace} />
    </>
  );
}

/** How batches come to be: the stages of tf.data or the DataLoader, and which one sets the pace. */
export function InputView() {
  return (
    <Section id="input" title={t("input_title")} lead={t("input_lead")}>
      <Answer resource={inputResource} label={t("loading_input")}>
        {(answer) => <Input answer={answer} />}
      </Answer>
    </Section>
  );
}
