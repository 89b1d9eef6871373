import type { GpuRef } from "../api/types";
import { formatInt, shorten } from "../format";
import { t } from "../i18n";

/** Whether GPUs of several hosts are shown, so that their names need the host. */
export const manyHosts = (gpus: readonly GpuRef[]): boolean => new Set(gpus.map((gpu) => gpu.host)).size > 1;

export function gpuName(gpu: GpuRef, withHost: boolean): string {
  const name = t("gpu_n", { id: gpu.id });
  return withHost && gpu.host ? `${shorten(gpu.host, 24)} · ${name}` : name;
}

const MOST_NAMED = 8;

/** GPUs of a finding in one line. */
export function gpuList(gpus: readonly GpuRef[], total: number, withHost: boolean): string {
  if (total > 1 && gpus.length === total) return t("gpus_all", { n: formatInt(total) });
  const names = gpus.slice(0, MOST_NAMED).map((gpu) => gpuName(gpu, withHost));
  const rest = gpus.length - names.length;
  return rest > 0 ? `${names.join(", ")} ${t("and_more", { n: formatInt(rest) })}` : names.join(", ");
}
