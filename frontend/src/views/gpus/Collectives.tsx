import { useMemo } from "preact/hooks";
import type { CollectiveGpu, CollectiveRow, CollectivesAnswer } from "../../api/collectives";
import { Plot } from "../../charts/Plot";
import { drawStack, type StackColumn, type StackMark, tallestColumn } from "../../charts/stacked";
import { formatBytes, formatInt, formatMeasured, formatNumber, shorten } from "../../format";
import { lang, plural, t, tId } from "../../i18n";
import { indexParam, textParam } from "../../state/params";
import { type Column, DataTable, titleOf } from "../../ui/DataTable";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Legend } from "../../ui/Swatch";

const collectiveSort = textParam("collective_sort", "-inside", { ofProfile: false });
const collectiveSearch = textParam("collective_search");
const collectiveRow = indexParam("collective");
const gpuSort = textParam("gpu_sort", "gpu", { ofProfile: false });

const PARTS = ["communication_wait", "communication_moving", "communication_unsplit"] as const;

function Bars({ title, name, columns }: { title: string; name: string; columns: StackColumn[] }) {
  return (
    <Plot<StackMark>
      name={name}
      title={title}
      summary={columns.map(({ text }) => text.replaceAll("\n", ", ")).join("; ")}
      height={220}
      depends={[columns]}
      draw={(scene) => drawStack(scene, columns, tallestColumn(columns))}
      legend={
        <Legend
          categories={PARTS.filter((id) => columns.some(({ parts }) => parts.some((part) => part.category === id)))}
        />
      }
      categories={PARTS}
    />
  );
}

const bar = (label: string, values: Record<(typeof PARTS)[number], number | null>): StackColumn => {
  const parts = PARTS.flatMap((category) => {
    const value = values[category] ?? 0;
    return value > 0 ? [{ category, value }] : [];
  });
  return {
    label,
    parts,
    text: [label, ...parts.map(({ category, value }) => `${tId("category", category)}: ${formatMeasured(value)}`)].join(
      "\n",
    ),
  };
};

function GpuTable({ answer, hosts }: { answer: CollectivesAnswer; hosts: boolean }) {
  const ms = (key: keyof CollectiveGpu & `${string}_ms`, label: string, hint: string): Column<CollectiveGpu> => ({
    key,
    label,
    hint,
    csvLabel: key,
    number: true,
    value: (row) => row[key],
    cell: (row) => formatMeasured(row[key]),
  });
  const columns: Column<CollectiveGpu>[] = [
    {
      key: "gpu",
      label: t("gpu"),
      value: (row) => row.lane,
      csv: (row) => gpuName({ host: row.host, id: row.gpu }, hosts),
      cell: (row) => gpuName({ host: row.host, id: row.gpu }, hosts),
    },
    ms("waiting_ms", t("collectives_waiting"), t("category_hint_communication_wait")),
    ms("moving_ms", t("collectives_moving"), t("category_hint_communication_moving")),
    ms("unsplit_ms", t("collectives_unsplit"), t("category_hint_communication_unsplit")),
    ms("hidden_ms", t("collectives_hidden"), t("term_hidden")),
    {
      key: "last",
      label: t("collectives_last"),
      hint: t("term_last"),
      number: true,
      value: (row) => row.last,
      cell: (row) => `${formatInt(row.last)} / ${formatInt(row.matched)}`,
    },
    ms("behind_ms", t("collectives_behind"), t("term_behind")),
    {
      key: "unmatched",
      label: t("collectives_unmatched"),
      hint: t("term_unmatched"),
      number: true,
      value: (row) => row.unmatched,
      cell: (row) => formatInt(row.unmatched),
    },
  ];
  return (
    <DataTable
      name="collectives-gpus"
      label={t("collectives_gpu_table")}
      rows={answer.gpus}
      columns={columns}
      order={gpuSort}
      tallest={320}
    />
  );
}

function RowTable({ answer, chosen }: { answer: CollectivesAnswer; chosen: number }) {
  const group = (row: CollectiveRow) => {
    const found = answer.groups.find(({ id }) => id === row.group);
    return found?.name ?? (found ? plural("timeline_lanes", found.lanes.length) : String(row.group));
  };
  const columns: Column<CollectiveRow>[] = [
    { key: "kind", label: t("collectives_kind"), value: (row) => tId("collective", row.kind) },
    {
      key: "name",
      label: t("kernel"),
      value: (row) => row.name,
      cell: (row) => shorten(row.name, 40),
      title: (row) => titleOf([row.name, row.op].filter(Boolean).join("\n")),
    },
    { key: "op", label: "op", csvOnly: true, value: (row) => row.op },
    { key: "group", label: t("collectives_group"), hint: t("term_group"), value: group },
    {
      key: "size",
      label: t("collectives_size"),
      csvLabel: "size_bytes",
      number: true,
      value: (row) => row.size_bytes,
      cell: (row) => formatBytes(row.size_bytes),
    },
    {
      key: "count",
      label: t("kernel_calls"),
      number: true,
      value: (row) => row.count,
      cell: (row) => formatInt(row.count),
    },
    {
      key: "inside",
      label: t("collectives_inside"),
      hint: t("term_inside"),
      csvLabel: "inside_ms",
      number: true,
      value: (row) => row.inside_ms,
      cell: (row) => formatMeasured(row.inside_ms),
    },
    {
      key: "wait",
      label: t("collectives_waiting"),
      hint: t("term_collective_wait"),
      csvLabel: "wait_ms",
      number: true,
      value: (row) => row.wait_ms,
      cell: (row) => formatMeasured(row.wait_ms),
    },
    {
      key: "moving",
      label: t("collectives_moving"),
      hint: t("term_collective_moving"),
      csvLabel: "moving_ms",
      number: true,
      value: (row) => row.moving_ms,
      cell: (row) => formatMeasured(row.moving_ms),
    },
    {
      key: "algorithm",
      label: t("collectives_algorithm"),
      hint: t("term_algorithm_bandwidth"),
      csvLabel: "algorithm_gb_per_s",
      number: true,
      value: (row) => row.algorithm_gb_per_s,
      cell: (row) => bandwidth(row.algorithm_gb_per_s),
    },
    {
      key: "bus",
      label: t("collectives_bus"),
      hint: t("term_bus_bandwidth"),
      csvLabel: "bus_gb_per_s",
      number: true,
      value: (row) => row.bus_gb_per_s,
      cell: (row) => bandwidth(row.bus_gb_per_s),
    },
  ];
  return (
    <DataTable
      name="collectives"
      label={t("collectives_table")}
      rows={answer.rows}
      columns={columns}
      order={collectiveSort}
      search={collectiveSearch}
      note={
        answer.truncated
          ? t("kernels_truncated", { n: formatInt(answer.rows.length), total: formatInt(answer.total_rows) })
          : undefined
      }
      onChoose={(row) => {
        collectiveRow.value = answer.rows.indexOf(row);
      }}
      chosen={(row) => answer.rows[chosen] === row}
      tallest={380}
    />
  );
}

const bandwidth = (value: number | null): string => (value === null ? "–" : `${formatNumber(value)} GB/s`);

/** What communication costs each GPU, and each kind of collective: waiting against moving data. */
export function Collectives({ answer }: { answer: CollectivesAnswer }) {
  const language = lang.value;
  const gpus = answer.gpus.map(({ host, gpu }) => ({ host, id: gpu }));
  const hosts = manyHosts(gpus);
  const nameOf = (lane: number) => {
    const found = answer.gpus.find((gpu) => gpu.lane === lane);
    return found ? gpuName({ host: found.host, id: found.gpu }, hosts) : String(lane);
  };
  // Dependencies: the words speak a language.
  const perGpu = useMemo(
    () =>
      answer.gpus.map((gpu) =>
        bar(nameOf(gpu.lane), {
          communication_wait: gpu.waiting_ms,
          communication_moving: gpu.moving_ms,
          communication_unsplit: gpu.unsplit_ms,
        }),
      ),
    [answer, language],
  );
  const index = Math.min(collectiveRow.value ?? 0, Math.max(0, answer.rows.length - 1));
  const chosen = answer.rows[index];
  const perRow = useMemo(
    () =>
      chosen?.per_gpu.map((each) =>
        bar(nameOf(each.lane), {
          communication_wait: each.wait_ms,
          communication_moving: each.moving_ms,
          communication_unsplit: null,
        }),
      ) ?? [],
    [chosen, language],
  );
  const anything = answer.gpus.some(({ moving_ms, waiting_ms, unsplit_ms, hidden_ms }) =>
    [moving_ms, waiting_ms, unsplit_ms, hidden_ms].some((ms) => (ms ?? 0) > 0),
  );
  if (!anything && !answer.rows.length) return <p class="state">{t("collectives_none")}</p>;
  return (
    <>
      <p class="sentence">
        {answer.method ? t(`collectives_method_${answer.method}`) : t("collectives_method_none")}
        {answer.method && answer.error_ms
          ? ` ${t("collectives_error", { error: formatMeasured(answer.error_ms) })}`
          : ""}
        {answer.missing_ranks.length
          ? ` ${t("collectives_missing", { list: answer.missing_ranks.slice(0, 20).map(String).join(", ") })}`
          : ""}
      </p>
      <Bars name="communication" title={t("collectives_per_gpu")} columns={perGpu} />
      <GpuTable answer={answer} hosts={hosts} />
      {answer.rows.length ? (
        <>
          <h3 class="apart">{t("collectives_table")}</h3>
          <RowTable answer={answer} chosen={index} />
          {chosen && perRow.length ? (
            <Bars
              name="collective"
              title={`${tId("collective", chosen.kind)} · ${shorten(chosen.name, 50)} · ${formatBytes(chosen.size_bytes)}`}
              columns={perRow}
            />
          ) : null}
        </>
      ) : null}
    </>
  );
}
