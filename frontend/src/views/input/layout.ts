import type { InputPipeline } from "../../api/input";

/** Where the stages of a pipeline stand: in columns by how far they are from the training. */

export interface Place {
  /** Index of the stage; -1: the training itself. */
  stage: number;
  /** 0: the training; larger: further away from it. */
  depth: number;
  /** Which of those at the same depth. */
  row: number;
}

export interface Layout {
  places: Place[];
  /** From a stage to who takes its elements (-1: the training), as indices of `places`. */
  arrows: [number, number][];
  depths: number;
  rows: number;
}

/** Longest way to the training; cycles, which no file should have, end. */
function depthsOf({ stages }: Pick<InputPipeline, "stages">): number[] {
  const depths = new Array<number>(stages.length).fill(0);
  const visit = (at: number, way: ReadonlySet<number>): number => {
    if (depths[at]) return depths[at];
    const takers = stages[at].taken_by.filter((taker) => taker >= 0 && taker < stages.length && !way.has(taker));
    const deeper = new Set(way).add(at);
    depths[at] = 1 + takers.reduce((most, taker) => Math.max(most, visit(taker, deeper)), 0);
    return depths[at];
  };
  for (const at of stages.keys()) visit(at, new Set());
  return depths;
}

export function layoutOf(pipeline: Pick<InputPipeline, "stages">): Layout {
  const depths = depthsOf(pipeline);
  const used = new Map<number, number>();
  const places: Place[] = [{ stage: -1, depth: 0, row: 0 }];
  for (const [stage, depth] of depths.entries()) {
    const row = used.get(depth) ?? 0;
    used.set(depth, row + 1);
    places.push({ stage, depth, row });
  }
  const arrows: [number, number][] = pipeline.stages.flatMap(({ taken_by }, stage): [number, number][] => {
    const takers = taken_by.filter((taker) => taker >= 0 && taker < pipeline.stages.length && taker !== stage);
    return takers.length ? takers.map((taker): [number, number] => [stage + 1, taker + 1]) : [[stage + 1, 0]];
  });
  return { places, arrows, depths: Math.max(0, ...depths) + 1, rows: Math.max(1, ...used.values()) };
}

/** GPUs that waited for less than this part of their window were not held up. */
const FELT = 0.01;

export type Pace = "limits" | "slowest" | "unknown";

/** The largest part of a window for which a GPU waited for this pipeline; null where no window is known. */
export function heldShare(
  pipeline: Pick<InputPipeline, "waited">,
  walls: ReadonlyMap<number, number | null>,
): number | null {
  let most: number | null = null;
  for (const { lane, ms } of pipeline.waited) {
    const wall = walls.get(lane);
    if (wall) most = Math.max(most ?? 0, ms / wall);
  }
  return most;
}

/** Whether the slowest stage holds up the training, or is only the slowest of a pipeline that keeps up. */
export function paceOf(pipeline: InputPipeline, held: number | null): Pace {
  if (pipeline.limiting === null) return "unknown";
  return pipeline.sets_pace && (held === null || held >= FELT) ? "limits" : "slowest";
}
