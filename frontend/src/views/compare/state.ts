import { batch } from "@preact/signals";
import type { Pair } from "../../api/compare";
import type { ProfileId, SessionInfo } from "../../api/types";
import { choiceParam, indexParam } from "../../state/params";
import { profileParam } from "../../state/profileParam";
import { sameProfile, view } from "../../state/store";

/** The session beside the shown one. It stays when another is shown, so that several can be held against one. */
export const other = profileParam("compare_with", { ofProfile: false });
/** What the shown session is in the comparison. */
export const shownAs = choiceParam("compare_as", ["after", "before"]);
export const batchBefore = indexParam("batch_before");
export const batchAfter = indexParam("batch_after");

/** What to ask for, with the shown session after the other one unless it was turned. */
export function pairOf(
  shown: ProfileId,
  beside: ProfileId,
  as: "after" | "before",
  batches: { before: number | null; after: number | null },
): Pair {
  const [before, after] = as === "after" ? [beside, shown] : [shown, beside];
  return { before, after, batchBefore: batches.before || null, batchAfter: batches.after || null };
}

/** Profiles that can be held against the shown one. */
export const comparable = (all: readonly SessionInfo[], shown: ProfileId): SessionInfo[] =>
  all.filter((session) => session.format !== "telemetry" && !session.problem && !sameProfile(session, shown));

/** The session before the shown one in its run; what a fix is usually held against. */
export function sessionBefore(all: readonly SessionInfo[], shown: ProfileId): SessionInfo | null {
  const mine = all.filter(({ run, format, problem }) => run === shown.run && format !== "telemetry" && !problem);
  const at = mine.findIndex((session) => sameProfile(session, shown));
  return at >= 0 ? (mine[at + 1] ?? null) : null;
}

/** Exchanges before and after, with their batches. */
export function turn(): void {
  batch(() => {
    shownAs.value = shownAs.value === "after" ? "before" : "after";
    [batchBefore.value, batchAfter.value] = [batchAfter.value, batchBefore.value];
  });
}

export function choose(session: ProfileId): void {
  batch(() => {
    other.value = { run: session.run, session: session.session };
    batchBefore.value = null;
    batchAfter.value = null;
  });
}

/** Holds the shown session against another one, the older of the two before the other. */
export function compareWith(session: ProfileId, isOlder: boolean): void {
  batch(() => {
    choose(session);
    shownAs.value = isOlder ? "after" : "before";
    view.value = "compare";
  });
}
