/** The views by the names that stand in links, in the order of the navigation. */
export const VIEW_IDS = [
  "verdict",
  "timeline",
  "gaps",
  "steps",
  "gpus",
  "kernels",
  "input",
  "telemetry",
  "compare",
  "history",
] as const;

export type ViewId = (typeof VIEW_IDS)[number];
