import type { RangeAnswer } from "../timelineRange";
import { type Block, finest, type Kept, overlap, PS_PER_MS, type Waits, type Whole } from "./whole";

const TOP_KERNELS = 12;

/** What fills a range lane by lane: exact from intervals, else from the bins. */
export function accounting(kept: Kept, all: Whole, start: number, end: number): RangeAnswer {
  const { meta, events, streams } = all;
  const lanes = meta.lanes.map(({ id }) => ({
    lane: id,
    ms: {} as Record<string, number>,
    communication_wait_ms: 0,
  }));
  const add = (lane: number, category: string, ps: number) => {
    const { ms } = lanes[lane];
    if (ps > 0) ms[category] = (ms[category] ?? 0) + ps / PS_PER_MS;
  };
  if (events) {
    for (let i = 0; i < events.count; i++) {
      const low = events.basePs + events.start[i] * events.unitPs;
      const high = events.basePs + events.end[i] * events.unitPs;
      add(events.lane[i], meta.categories[events.category[i]], overlap(start, end, low, high));
    }
    const waits = kept.json<Waits>("waits");
    for (const [i, lane] of (waits?.lane ?? []).entries()) {
      const ps = overlap(start, end, waits?.start_ps[i] ?? 0, waits?.end_ps[i] ?? 0);
      if (ps > 0) lanes[lane].communication_wait_ms += ps / PS_PER_MS;
    }
  } else {
    const sum = (from: readonly Block[], take: (lane: number, category: number, ps: number) => void) => {
      const block = finest(from, start, end);
      if (!block) return;
      const { bins } = block;
      const size = (block.end - block.start) / bins.width;
      for (let row = 0; row < bins.lanes * bins.categories; row++) {
        let ps = 0;
        for (let b = 0; b < bins.width; b++) {
          const cell = bins.cells[row * bins.width + b];
          const low = block.start + b * size;
          if (cell) ps += Math.max(0, overlap(start, end, low, low + size)) * (cell / 255);
        }
        take(Math.floor(row / bins.categories), row % bins.categories, ps);
      }
    };
    sum(all.bins, (lane, category, ps) => add(lane, meta.categories[category], ps));
    sum(all.waits, (lane, _, ps) => {
      lanes[lane].communication_wait_ms = ps / PS_PER_MS;
    });
  }
  const totals = new Map<string, { name: string; total_ms: number; calls: number }>();
  for (const { events: all, names } of streams ?? []) {
    for (let i = 0; i < all.name.length; i++) {
      const ps = overlap(start, end, all.start_ps[i], all.end_ps[i]);
      if (ps <= 0) continue;
      const name = names[all.name[i]];
      const entry = totals.get(name) ?? { name, total_ms: 0, calls: 0 };
      entry.total_ms += ps / PS_PER_MS;
      entry.calls += 1;
      totals.set(name, entry);
    }
  }
  const kernels = [...totals.values()]
    .sort((a, b) => b.total_ms - a.total_ms || (a.name < b.name ? -1 : 1))
    .slice(0, TOP_KERNELS);
  return { start_ps: start, end_ps: end, lanes, kernels };
}
