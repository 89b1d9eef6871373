import type { Evidence } from "../../api/types";

/** The same moment as several GPUs saw it. */
export interface EvidenceGroup {
  host: string;
  /** Empty: of the host alone. */
  gpus: number[];
  startMs: number | null;
  endMs: number | null;
  thread: string | null;
  step: number | null;
  what: string;
}

const ALIKE = 0.9;

/** Whether two intervals are about the same moment: what they share is most of what they cover together. */
function overlaps(group: EvidenceGroup, { start_ms, end_ms }: Evidence): boolean {
  if (group.startMs === null || group.endMs === null || start_ms === null || end_ms === null)
    return group.startMs === start_ms && group.endMs === end_ms;
  const shared = Math.min(group.endMs, end_ms) - Math.max(group.startMs, start_ms);
  const both = Math.max(group.endMs, end_ms) - Math.min(group.startMs, start_ms);
  return both === 0 || shared >= ALIKE * both;
}

/**
 * Evidence in its own order, what several GPUs of one host show at the same time taken together:
 * eight GPUs that wait for one batch are one piece of evidence, not eight.
 */
export function groupEvidence(evidence: readonly Evidence[]): EvidenceGroup[] {
  const groups: EvidenceGroup[] = [];
  for (const item of evidence) {
    const { host, gpu, start_ms, end_ms, thread, step, what } = item;
    const found =
      gpu === null
        ? undefined
        : groups.find(
            (group) =>
              group.host === host &&
              group.gpus.length > 0 &&
              !group.gpus.includes(gpu) &&
              group.step === step &&
              group.what === what &&
              overlaps(group, item),
          );
    if (found) {
      found.gpus.push(gpu as number);
      if (found.thread !== thread) found.thread = null;
      if (start_ms !== null && end_ms !== null) {
        found.startMs = Math.min(found.startMs ?? start_ms, start_ms);
        found.endMs = Math.max(found.endMs ?? end_ms, end_ms);
      }
    } else {
      groups.push({ host, gpus: gpu === null ? [] : [gpu], startMs: start_ms, endMs: end_ms, thread, step, what });
    }
  }
  return groups;
}
