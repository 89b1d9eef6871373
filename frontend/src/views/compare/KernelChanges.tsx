import { useMemo } from "preact/hooks";
import type { ComparedKernel, Comparison } from "../../api/compare";
import { formatMeasured, formatNumber, formatPercent, shorten } from "../../format";
import { t, tId } from "../../i18n";
import { choiceParam, textParam } from "../../state/params";
import { type Column, DataTable, titleOf } from "../../ui/DataTable";
import { formatChange, formatMoved } from "./words";

const kernelSort = textParam("compare_kernels", "", { ofProfile: false });
const kernelFind = textParam("compare_find");
const KINDS = ["", "added", "gone", "changed"] as const;
const kernelKind = choiceParam("compare_kind", KINDS);

const NAME = 56;
const shape = (sizes: number[] | null): string => (sizes ? sizes.join(" × ") : "");

/** Kernels by name and shape, before and after; the changes sum to that of all kernels. */
export function KernelChanges({ answer }: { answer: Comparison }) {
  const kind = kernelKind.value;
  const rows = useMemo(() => answer.kernels.filter(({ change }) => !kind || change === kind), [answer, kind]);
  if (!answer.kernels.length) return null;
  // Without steps times are per millisecond of the window: its share.
  const shares = answer.unit === "window";
  const show = shares ? formatPercent : formatMeasured;
  const moved = shares ? formatChange : formatMoved;
  const unit = shares ? "share" : "ms";
  const nameOf = (kernel: ComparedKernel) => kernel.name || t("compare_other_kernels");
  const total = (answer.kernel_time_after_ms ?? 0) - (answer.kernel_time_before_ms ?? 0);
  const number = (
    key: string,
    label: string,
    value: (kernel: ComparedKernel) => number | null,
    show: (value: number | null) => string,
    more: Partial<Column<ComparedKernel>> = {},
  ): Column<ComparedKernel> => ({
    key,
    label,
    number: true,
    value,
    cell: (kernel) => show(value(kernel)),
    ...more,
  });
  const columns: Column<ComparedKernel>[] = [
    {
      key: "name",
      label: t("compare_kernel"),
      value: nameOf,
      cell: (kernel) => shorten(nameOf(kernel), NAME),
      title: (kernel) => titleOf([nameOf(kernel), shape(kernel.grid), shape(kernel.block)].filter(Boolean).join("\n")),
    },
    {
      key: "change",
      label: t("compare_kind"),
      value: ({ change }) => tId("kernel_change", change),
      csv: ({ change }) => change,
    },
    number("moved", t("compare_change"), ({ difference_ms }) => difference_ms, moved, {
      hint: t("term_compare_kernel"),
      csvLabel: `change_${unit}`,
    }),
    number("before", t("compare_before"), ({ before_ms }) => before_ms, show, { csvLabel: `before_${unit}` }),
    number("after", t("compare_after"), ({ after_ms }) => after_ms, show, { csvLabel: `after_${unit}` }),
    number("calls_before", t("compare_calls_before"), ({ calls_before }) => calls_before, formatNumber, {
      hint: t("term_compare_calls"),
      csvLabel: "calls_before",
    }),
    number("calls_after", t("compare_calls_after"), ({ calls_after }) => calls_after, formatNumber, {
      hint: t("term_compare_calls"),
      csvLabel: "calls_after",
    }),
    number("occupancy_before", t("compare_occupancy_before"), (k) => k.occupancy_before, formatPercent, {
      csvLabel: "occupancy_before",
    }),
    number("occupancy_after", t("compare_occupancy_after"), (k) => k.occupancy_after, formatPercent, {
      csvLabel: "occupancy_after",
    }),
    { key: "grid", label: "grid", csvOnly: true, value: ({ grid }) => shape(grid) },
    { key: "block", label: "block", csvOnly: true, value: ({ block }) => shape(block) },
  ];
  return (
    <>
      <h3 class="apart">{t("compare_kernels_title")}</h3>
      <p class="sentence">
        {t("compare_kernels_sum", {
          before: show(answer.kernel_time_before_ms),
          after: show(answer.kernel_time_after_ms),
          change: moved(total),
        })}
      </p>
      <DataTable
        name="compare-kernels"
        label={t("compare_kernels_title")}
        rows={rows}
        columns={columns}
        order={kernelSort}
        search={kernelFind}
        searchLabel={t("compare_kernels_find")}
        tools={
          <label>
            {t("compare_kind")}
            <select
              value={kind}
              onChange={(event) => {
                kernelKind.value = event.currentTarget.value as (typeof KINDS)[number];
              }}
            >
              <option value="">{t("compare_every_kind")}</option>
              {KINDS.filter(Boolean).map((each) => (
                <option key={each} value={each}>
                  {tId("kernel_change", each)}
                </option>
              ))}
            </select>
          </label>
        }
      />
    </>
  );
}
