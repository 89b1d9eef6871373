import type { KernelDevice, KernelRow, KernelsAnswer } from "../../api/kernels";
import { formatInt, formatPercent, UNKNOWN } from "../../format";
import { t } from "../../i18n";
import { gpuName } from "../../ui/gpu";

const FEW_GPUS = 4;

const range = (values: readonly number[]): [string, string] => [
  formatPercent(Math.min(...values)),
  formatPercent(Math.max(...values)),
];

/** Time-weighted occupancy of each GPU, in words; of many GPUs, from the lowest to the highest. */
export function occupancySentence({ devices }: Pick<KernelsAnswer, "devices">, hosts: boolean): string {
  const known = devices.filter((device) => device.occupancy !== null);
  if (!known.length) return t("occupancy_unknown");
  const [low, high] = range(known.map((device) => device.occupancy as number));
  if (known.length === devices.length && known.length > 1 && low === high) return t("occupancy_same", { value: low });
  if (known.length > FEW_GPUS) return t("occupancy_range", { low, high });
  const list = known.map((device) => `${gpuName(device, hosts)} ${formatPercent(device.occupancy)}`);
  return t("occupancy_line", { list: list.join(", ") });
}

/** How much of the multiprocessors' slots the kernels held over the whole window. */
export function efficiencySentence(devices: readonly KernelDevice[]): string {
  const values = devices.flatMap(({ sm_efficiency }) => (sm_efficiency === null ? [] : [sm_efficiency]));
  if (!values.length) return "";
  const [low, high] = range(values);
  return low === high ? t("efficiency_same", { value: low }) : t("efficiency_range", { low, high });
}

/** Of the time of matrix products, convolutions and attention: where tensor cores worked, and where nobody knows. */
export function tensorShare(devices: readonly KernelDevice[]): { used: number; unknown: number } | null {
  let used = 0;
  let unknown = 0;
  let all = 0;
  for (const { tensor_cores_ms: ms } of devices) {
    if (!ms) continue;
    used += ms.used;
    unknown += ms.unknown;
    all += ms.used + ms.unused + ms.not_eligible + ms.unknown;
  }
  return all > 0 ? { used: used / all, unknown: unknown / all } : null;
}

export const sharedBytes = (row: KernelRow): number | null =>
  row.static_shared_bytes === null && row.dynamic_shared_bytes === null
    ? null
    : (row.static_shared_bytes ?? 0) + (row.dynamic_shared_bytes ?? 0);

export const dims = (values: readonly number[] | null): string =>
  values ? values.map((value) => formatInt(value)).join(" × ") : UNKNOWN;

/** The GPUs of a row: the one, or how many. */
export function rowGpus(row: KernelRow, devices: readonly KernelDevice[], hosts: boolean): string {
  const device = row.device === null ? undefined : devices[row.device];
  if (device) return gpuName(device, hosts);
  return row.devices.length === devices.length
    ? t("gpus_all", { n: formatInt(devices.length) })
    : t("gpus_n", { ids: row.devices.map((index) => devices[index]?.id ?? index).join(", ") });
}

/** Rows that a GPU has a part in; all without one. */
export const rowsOfDevice = (rows: readonly KernelRow[], device: number | null): readonly KernelRow[] =>
  device === null ? rows : rows.filter(({ devices }) => devices.includes(device));

/** The chosen row; without a choice the longest one that computes and whose occupancy is known. */
export function chosenRow(rows: readonly KernelRow[], id: number | null): KernelRow | null {
  const found = id === null ? undefined : rows.find((row) => row.id === id);
  if (found) return found;
  return rows.find(({ family, occupancy }) => family !== "communication" && occupancy !== null) ?? rows[0] ?? null;
}

const LONGEST_SEARCH = 120;

/** Words that find a kernel by its name: all of a short one, else what stands before its parameters. */
export function searchWords(name: string): string {
  const clean = name.trim();
  if (clean.length <= LONGEST_SEARCH) return clean;
  const [plain] = clean.replace(/^void\s+/, "").split(/[<(]/);
  return (plain.trim() || clean).slice(0, LONGEST_SEARCH);
}
