import type { TimelineMeta } from "../../api/types";
import { formatRange } from "../../format";
import { plural, t } from "../../i18n";
import { PS_PER_MS, view } from "../../state/timelineView";

/** What a screen reader is told instead of the picture. */

const MOST_DESCRIBED = 64;

/** How much there is, and what of it is shown. */
export function summary(meta: TimelineMeta): string {
  const range = view.value;
  const parts = [plural("timeline_lanes", meta.lanes.length), plural("timeline_steps", meta.steps.length)];
  if (range) parts.push(t("timeline_shows", { range: formatRange(range.start / PS_PER_MS, range.end / PS_PER_MS) }));
  return parts.join(". ");
}

/** Each lane by its name and size. */
export function describeLanes({ lanes }: TimelineMeta): string {
  const described = lanes
    .slice(0, MOST_DESCRIBED)
    .map((lane) => `${lane.label}: ${plural("intervals", lane.intervals)}`);
  return described.join("; ");
}
