import { computed } from "@preact/signals";
import type { GpuRef } from "../api/types";
import { formatInt, shorten } from "../format";
import { t } from "../i18n";
import { diagnosis } from "../state/store";

/** Whether GPUs of several hosts are shown, so that their names need the host. */
export const manyHosts = (gpus: readonly GpuRef[]): boolean => new Set(gpus.map((gpu) => gpu.host)).size > 1;

/** By host and number: the ranks and names of GPUs whose processes have a rank and one GPU each. */
const byRank = computed(() => {
  const found = new Map<string, { rank: number; label: string }>();
  const devices = diagnosis.value.data?.devices ?? [];
  const alone = new Set(devices.map(({ host }) => host)).size === devices.length;
  for (const { host, id, rank, label } of alone ? devices : [])
    if (rank !== null && label) found.set(`${host}\n${id}`, { rank, label });
  return found;
});
const rankOf = ({ host, id }: GpuRef) => byRank.value.get(`${host}\n${id}`);

export function gpuName(gpu: GpuRef, withHost: boolean): string {
  const known = withHost ? rankOf(gpu) : undefined;
  if (known) return shorten(known.label, 48);
  const name = t("gpu_n", { id: gpu.id });
  return withHost && gpu.host ? `${shorten(gpu.host, 24)} · ${name}` : name;
}

const MOST_HOSTS = 4;

/** GPUs of a finding in one line: all 8 GPUs; GPUs 0, 2 and 4–7; by host where there are several. */
export function gpuList(gpus: readonly GpuRef[], total: number, withHost: boolean): string {
  if (total > 1 && gpus.length === total) return total === 2 ? t("gpus_both") : t("gpus_all", { n: formatInt(total) });
  const ranks = withHost ? gpus.flatMap((gpu) => rankOf(gpu)?.rank ?? []) : [];
  if (gpus.length && ranks.length === gpus.length)
    return ranks.length === 1 ? gpuName(gpus[0], true) : t("ranks_n", { ids: listing(idRanges(ranks)) });
  const byHost = new Map<string, number[]>();
  for (const { host, id } of gpus) byHost.set(host, [...(byHost.get(host) ?? []), id]);
  const named = [...byHost].slice(0, MOST_HOSTS);
  const words = named.map(([host, ids]) => {
    const list = ids.length === 1 ? t("gpu_n", { id: ids[0] }) : t("gpus_n", { ids: listing(idRanges(ids)) });
    return withHost && host ? `${shorten(host, 24)} · ${list}` : list;
  });
  const rest = gpus.length - named.reduce((count, [, ids]) => count + ids.length, 0);
  return rest > 0 ? `${words.join("; ")} ${t("and_more", { n: formatInt(rest) })}` : words.join("; ");
}

/** Three and more in a row as one range. */
export function idRanges(ids: readonly number[]): string[] {
  const rows: number[][] = [];
  for (const id of [...new Set(ids)].sort((a, b) => a - b)) {
    const row = rows[rows.length - 1];
    if (row && id === row[row.length - 1] + 1) row.push(id);
    else rows.push([id]);
  }
  return rows.flatMap((row) => (row.length > 2 ? [`${row[0]}–${row[row.length - 1]}`] : row.map(String)));
}

const listing = (items: readonly string[]): string =>
  items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")}${t("and")}${items[items.length - 1]}`;
