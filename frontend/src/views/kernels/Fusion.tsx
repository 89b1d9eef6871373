import { type FusionAnswer, type FusionCandidate, fusionResource, type KernelDevice } from "../../api/kernels";
import { formatInt, formatMeasured, formatPercent, shorten } from "../../format";
import { t } from "../../i18n";
import { showOnTimeline } from "../../state/store";
import { PS_PER_MS } from "../../state/timelineView";
import { type Column, DataTable, titleOf } from "../../ui/DataTable";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Answer } from "../../ui/Section";
import { fusionSort } from "./state";

const NAME = 70;

function Candidates({ answer, devices }: { answer: FusionAnswer; devices: readonly KernelDevice[] }) {
  if (!answer.candidates.length) return <p class="state good">{t("fusion_none")}</p>;
  const hosts = manyHosts(devices);
  const nameOf = (index: number) => (devices[index] ? gpuName(devices[index], hosts) : String(index));
  // Of the GPU that could gain most: gains of several GPUs are not gained one after the other.
  const best = answer.saving_ms.reduce((most, ms, i) => (ms > answer.saving_ms[most] ? i : most), 0);
  const time = devices[best]?.kernel_ms ?? 0;
  const show = ({ device, start_ps, end_ps }: FusionCandidate) =>
    showOnTimeline({
      host: devices[device]?.host ?? "",
      gpus: devices[device] ? [devices[device].id] : [],
      startMs: start_ps / PS_PER_MS,
      endMs: end_ps / PS_PER_MS,
    });
  const chain = ({ names, kernels }: FusionCandidate) =>
    `${names.join("\n")}${kernels > names.length ? `\n… ${t("and_more", { n: formatInt(kernels - names.length) })}` : ""}`;
  const columns: Column<FusionCandidate>[] = [
    {
      key: "names",
      label: t("fusion_chain"),
      value: (row) => row.names.join(" "),
      csv: (row) => row.names.join("; "),
      cell: (row) => <span class="kernel-name">{shorten(row.names.join(" → "), NAME)}</span>,
      title: (row) => titleOf(chain(row)),
    },
    { key: "gpu", label: t("gpu"), value: (row) => nameOf(row.device) },
    {
      key: "kernels",
      label: t("fusion_length"),
      hint: t("fusion_length_hint"),
      number: true,
      value: (row) => row.kernels,
      cell: (row) => formatInt(row.kernels),
    },
    {
      key: "runs",
      label: t("fusion_runs"),
      hint: t("fusion_runs_hint"),
      number: true,
      value: (row) => row.runs,
      cell: (row) => formatInt(row.runs),
    },
    {
      key: "total",
      label: t("kernel_total"),
      csvLabel: "total_ms",
      number: true,
      value: (row) => row.total_ms,
      cell: (row) => formatMeasured(row.total_ms),
    },
    {
      key: "saving",
      label: t("fusion_saving"),
      hint: t("fusion_saving_hint"),
      csvLabel: "saving_ms",
      number: true,
      value: (row) => row.saving_ms,
      cell: (row) => {
        const share = devices[row.device]?.kernel_ms ? row.saving_ms / devices[row.device].kernel_ms : 0;
        return (
          <span class="occupancy">
            <span class="meter" aria-hidden="true">
              <span style={{ width: `${Math.min(100, share * 100)}%` }} />
            </span>
            {formatMeasured(row.saving_ms)}
          </span>
        );
      },
    },
    {
      key: "step",
      label: t("fusion_per_step"),
      hint: t("fusion_saving_hint"),
      csvLabel: "saving_per_step_ms",
      number: true,
      value: (row) => row.saving_per_step_ms,
      cell: (row) => formatMeasured(row.saving_per_step_ms),
    },
    {
      key: "ops",
      label: t("fusion_ops"),
      value: (row) => row.ops.filter(Boolean).join(" ") || null,
      cell: (row) => shorten(row.ops.filter(Boolean).join(" → "), NAME) || "–",
      title: (row) => titleOf(row.ops.filter(Boolean).join("\n")),
    },
  ];
  return (
    <>
      <p class="sentence">
        {t("fusion_sentence", {
          gpu: nameOf(best),
          ms: formatMeasured(answer.saving_ms[best]),
          share: formatPercent(time > 0 ? answer.saving_ms[best] / time : null),
        })}
      </p>
      <DataTable
        name="fusion"
        label={t("fusion_title")}
        rows={answer.candidates}
        columns={columns}
        order={fusionSort}
        note={answer.truncated ? t("fusion_truncated", { n: formatInt(answer.candidates.length) }) : t("fusion_hint")}
        onChoose={show}
        tallest={320}
      />
    </>
  );
}

/** Runs of short elementwise kernels that a compiler could join, with an upper bound of what that saves. */
export function Fusion({ devices }: { devices: readonly KernelDevice[] }) {
  return (
    <Answer resource={fusionResource} label={t("loading_kernels")}>
      {(answer) => <Candidates answer={answer} devices={devices} />}
    </Answer>
  );
}
