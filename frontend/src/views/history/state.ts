import type { HistoryAnswer, PastSession } from "../../api/history";
import type { ProfileId, SessionInfo } from "../../api/types";
import { choiceParam, textParam } from "../../state/params";
import { profileParam } from "../../state/profileParam";

/** Which sessions: those of the shown one's run, or all. Empty: of the run where it has several. */
export const historyOf = choiceParam("history_of", ["", "run", "all"]);
export const historySort = textParam("history_sort", "-time", { ofProfile: false });
export const historyFind = textParam("history_find");
/** The session that was pointed at. */
export const past = profileParam("history_session");

export const nameOf = ({ run, session }: ProfileId): string => [run, session].filter(Boolean).join("/");

/** The run to ask for; null: all. */
export function runOf(choice: "" | "run" | "all", all: readonly SessionInfo[], shown: ProfileId): string | null {
  if (choice === "run") return shown.run;
  if (choice === "all") return null;
  return all.filter(({ run, format }) => run === shown.run && format !== "telemetry").length > 1 ? shown.run : null;
}

/** Parts of a step in which its GPU did no work: waiting for others inside collectives, and idle by cause. */
const WORK = ["compute", "communication_moving", "communication_unsplit", "transfer"];

export const lostParts = (parts: readonly string[]): string[] => parts.filter((part) => !WORK.includes(part));

export function partMs(answer: HistoryAnswer, session: PastSession, part: string): number | null {
  const at = answer.parts.indexOf(part);
  return session.parts_ms?.[at] ?? null;
}

/** The part of the time that was idle, and that was spent waiting inside collectives; null where unknown. */
export function lostShares(
  answer: HistoryAnswer,
  session: PastSession,
): { idle: number | null; waiting: number | null } {
  const values = session.parts_ms ?? session.window_shares;
  if (!values) return { idle: null, waiting: null };
  const whole = values.reduce((sum, value) => sum + value, 0);
  if (!(whole > 0)) return { idle: null, waiting: null };
  const of = (names: readonly string[]) =>
    names.reduce((sum, name) => sum + (values[answer.parts.indexOf(name)] ?? 0), 0) / whole;
  const waiting = ["communication_wait"];
  return { idle: of(lostParts(answer.parts).filter((part) => !waiting.includes(part))), waiting: of(waiting) };
}

/** Whether a session is held against the others. */
export const isCompared = ({ step_ms, problem }: PastSession): boolean => step_ms !== null && !problem;

export interface Level {
  from: number;
  to: number;
  ms: number;
}

/** The levels between changes of the step time, as stretches of sessions. */
export function levelsOf(answer: HistoryAnswer): Level[] {
  const changes = answer.changes
    .filter(({ metric }) => metric === "step")
    .sort((a, b) => a.session_index - b.session_index);
  if (!changes.length) return [];
  // Sessions at the ends that are not compared belong to no level.
  const first = answer.sessions.findIndex(isCompared);
  const last = answer.sessions.findLastIndex(isCompared);
  return [
    { from: Math.min(first, changes[0].session_index - 1), to: changes[0].session_index - 1, ms: changes[0].before_ms },
    ...changes.map((change, i) => ({
      from: change.session_index,
      to: i + 1 < changes.length ? changes[i + 1].session_index - 1 : last,
      ms: change.after_ms,
    })),
  ];
}

export interface MatrixRow {
  kind: string;
  name: string;
  /** One a session; null: not found there. */
  severities: (string | null)[];
}

const WEIGHT: Record<string, number> = { critical: 100, warning: 10, info: 1 };

/** Findings over sessions, the weightiest first. */
export function matrixOf(sessions: readonly PastSession[]): MatrixRow[] {
  const rows = new Map<string, MatrixRow>();
  for (const [i, { findings }] of sessions.entries()) {
    for (const { kind, name, severity } of findings) {
      let row = rows.get(kind);
      if (!row) {
        row = { kind, name, severities: sessions.map(() => null) };
        rows.set(kind, row);
      }
      const before = row.severities[i];
      if (before === null || (WEIGHT[severity] ?? 0) > (WEIGHT[before] ?? 0)) row.severities[i] = severity;
    }
  }
  const weight = ({ severities }: MatrixRow) =>
    severities.reduce((sum, each) => sum + (each ? (WEIGHT[each] ?? 0) : 0), 0);
  return [...rows.values()].sort((a, b) => weight(b) - weight(a) || (a.kind < b.kind ? -1 : 1));
}
