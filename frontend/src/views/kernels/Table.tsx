import { csvUrl, type KernelRow, type KernelsAnswer } from "../../api/kernels";
import { isSnapshot } from "../../api/snapshot/file";
import type { ProfileId } from "../../api/types";
import { familyCategory } from "../../charts/families";
import { formatBytes, formatInt, formatMeasured, formatNumber, formatPercent, shorten, UNKNOWN } from "../../format";
import { lang, t, tId } from "../../i18n";
import { type Column, DataTable, titleOf } from "../../ui/DataTable";
import { manyHosts } from "../../ui/gpu";
import { Icon } from "../../ui/Icon";
import { Swatch } from "../../ui/Swatch";
import { kernelFilter, kernelSort } from "./state";
import { dims, rowGpus, sharedBytes } from "./words";

const NAME = 46;

function Occupancy({ row }: { row: KernelRow }) {
  if (row.occupancy === null) return <>{UNKNOWN}</>;
  return (
    <span class="occupancy">
      <span class="meter" aria-hidden="true">
        <span style={{ width: `${Math.min(100, row.occupancy * 100)}%` }} />
      </span>
      {formatPercent(row.occupancy)}
    </span>
  );
}

const limiterOf = (row: KernelRow): string | null => (row.limiter ? tId("limiter_short", row.limiter) : null);
const tensorOf = (row: KernelRow): string | null =>
  row.tensor_cores ? tId("category", `tensor_${row.tensor_cores}`) : null;

function columnsOf(answer: KernelsAnswer): Column<KernelRow>[] {
  const hosts = manyHosts(answer.devices);
  const number = (
    key: string,
    label: string,
    value: (row: KernelRow) => number | null,
    show: (value: number | null) => string,
    more: Partial<Column<KernelRow>> = {},
  ): Column<KernelRow> => ({ key, label, number: true, value, cell: (row) => show(value(row)), ...more });
  const micro = (us: number | null) => formatMeasured(us === null ? null : us / 1000);
  const plain = (key: string, value: (row: KernelRow) => string | number | null): Column<KernelRow> => ({
    key,
    label: key,
    csvOnly: true,
    number: true,
    value,
  });
  return [
    {
      key: "name",
      label: t("kernel"),
      csvLabel: "name",
      value: (row) => row.name,
      cell: (row) => <span class="kernel-name">{shorten(row.name, NAME)}</span>,
      title: (row) =>
        titleOf(
          [row.name, row.op, `${t("grid")}: ${dims(row.grid)} · ${t("block")}: ${dims(row.block)}`]
            .filter(Boolean)
            .join("\n"),
        ),
    },
    {
      key: "device",
      label: t("gpu"),
      value: (row) => row.device ?? answer.devices.length,
      csv: (row) => rowGpus(row, answer.devices, hosts),
      cell: (row) => rowGpus(row, answer.devices, hosts),
      number: false,
    },
    number("total_ms", t("kernel_total"), (row) => row.total_ms, formatMeasured, {
      hint: t("kernel_total_hint"),
      csvLabel: "total_ms",
    }),
    number("share", t("kernel_share"), (row) => row.share, formatPercent, { hint: t("kernel_share_hint") }),
    number("calls", t("kernel_calls"), (row) => row.calls, formatInt, { hint: t("kernel_calls_hint") }),
    number("mean_us", t("kernel_mean"), (row) => row.mean_us, micro, {
      hint: t("kernel_mean_hint"),
      csvLabel: "mean_us",
    }),
    {
      key: "family",
      label: t("kernel_family"),
      hint: t("kernel_family_hint"),
      value: (row) => tId("category", familyCategory(row.family)),
      csv: (row) => row.family,
      cell: (row) => (
        <>
          <Swatch category={familyCategory(row.family)} /> {tId("category", familyCategory(row.family))}
        </>
      ),
    },
    {
      key: "occupancy",
      label: t("occupancy"),
      hint: t("occupancy_hint"),
      number: true,
      value: (row) => row.occupancy,
      cell: (row) => <Occupancy row={row} />,
    },
    {
      key: "limiter",
      label: t("kernel_limiter"),
      hint: t("kernel_limiter_hint"),
      value: limiterOf,
      csv: (row) => row.limiter,
    },
    number("achieved", t("kernel_achieved"), (row) => row.achieved_occupancy, formatPercent, {
      hint: t("kernel_achieved_hint"),
    }),
    number("waves", t("kernel_waves"), (row) => row.waves, formatNumber, { hint: t("kernel_waves_hint") }),
    number("tail", t("kernel_tail"), (row) => row.tail, formatPercent, { hint: t("kernel_tail_hint") }),
    number("sm_share", t("kernel_sm_share"), (row) => row.sm_share, formatPercent, { hint: t("kernel_sm_share_hint") }),
    {
      key: "tensor",
      label: t("kernel_tensor"),
      hint: t("kernel_tensor_hint"),
      value: tensorOf,
      csv: (row) => row.tensor_cores,
    },
    { key: "type", label: t("kernel_type"), hint: t("kernel_type_hint"), value: (row) => row.data_type },
    number("blocks", t("kernel_blocks"), (row) => row.blocks, formatInt, {
      hint: t("kernel_blocks_hint"),
      title: (row) => `${t("grid")}: ${dims(row.grid)}`,
    }),
    {
      key: "block",
      label: t("block"),
      hint: t("kernel_block_hint"),
      value: (row) => dims(row.block),
    },
    number("registers", t("kernel_registers"), (row) => row.registers, formatInt, { hint: t("kernel_registers_hint") }),
    number("shared", t("kernel_shared"), sharedBytes, formatBytes, {
      hint: t("kernel_shared_hint"),
      csvLabel: "shared_bytes",
    }),
    number("min_us", t("kernel_min"), (row) => row.min_us, micro, { hint: t("kernel_min_hint"), csvLabel: "min_us" }),
    number("max_us", t("kernel_max"), (row) => row.max_us, micro, { hint: t("kernel_max_hint"), csvLabel: "max_us" }),
    ...(answer.rows.some(({ bound }) => bound)
      ? [
          {
            key: "bound",
            label: t("kernel_bound"),
            hint: t("kernel_bound_hint"),
            value: (row: KernelRow) => (row.bound ? tId("bound", row.bound) : null),
            csv: (row: KernelRow) => row.bound,
          },
        ]
      : []),
    {
      key: "op",
      label: t("tip_op"),
      value: (row) => row.op || null,
      cell: (row) => (row.op ? shorten(row.op, NAME) : UNKNOWN),
      title: (row) => titleOf(row.op),
    },
    plain("grid", (row) => row.grid?.join("x") ?? null),
    plain("recorded_occupancy", (row) => row.recorded_occupancy),
  ];
}

interface TableProps {
  answer: KernelsAnswer;
  rows: readonly KernelRow[];
  profile: ProfileId;
  chosen: KernelRow | null;
  choose: (row: KernelRow) => void;
}

/** Every kernel with all that is known of it. */
export function KernelTable({ answer, rows, profile, chosen, choose }: TableProps) {
  return (
    <DataTable
      name="kernels"
      label={t("kernels_table")}
      rows={rows}
      columns={columnsOf(answer)}
      order={kernelSort}
      search={kernelFilter}
      searchLabel={t("kernel_filter")}
      empty={t("kernels_no_match")}
      note={
        answer.truncated
          ? t("kernels_truncated", { n: formatInt(answer.rows.length), total: formatInt(answer.total_rows) })
          : undefined
      }
      tools={
        // A report of one file has no server that would have it.
        isSnapshot() ? null : (
          <a class="action" href={csvUrl(profile, answer.by, lang.value)} download="kernels.csv">
            <Icon name="save" />
            {t("kernels_csv")}
          </a>
        )
      }
      onChoose={choose}
      chosen={(row) => row === chosen}
      rowKey={(row) => String(row.id)}
    />
  );
}
