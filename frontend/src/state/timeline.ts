import { signal } from "@preact/signals";
import { NO_NAME } from "../api/binary";
import { type ApiError, asApiError, isAbort } from "../api/errors";
import { fetchBins, fetchEvents } from "../api/routes";
import { fetchWaits } from "../api/timelineRange";
import type { ProfileId, TimelineMeta } from "../api/types";
import {
  type BinBlock,
  coverFromBins,
  coverFromEvents,
  type EventBlock,
  findEvent,
  indexEvents,
  type LaneEvents,
  makeBinBlock,
} from "../charts/columns";
import { covers, length, type Range, widen } from "../charts/viewport";
import { whenVisible } from "./host";

const DEBOUNCE_MS = 90;
const EVENT_BLOCKS = 4;
const BIN_BLOCKS = 6;
/** Share of the view's length loaded beyond each side, so that panning has something to show. */
const EVENT_MARGIN = 1;
const BIN_MARGIN = 0.5;
const WIDEST_BINS = 4096;
/** A bin block is good enough down to this many bins a pixel. */
const BINS_PER_PIXEL = 0.75;

export type Detail = "events" | "bins";

/**
 * What to load for a view: intervals when so few are expected that they fit, else bins.
 * `tooLong` is the length of the shortest window that had too many (Infinity: none yet).
 */
export function chooseDetail(
  view: Range,
  extent: Range,
  intervals: number,
  limit: number,
  tooLong: number,
): { detail: Detail; range: Range } {
  for (const margin of [EVENT_MARGIN, 0]) {
    const range = widen(view, margin, extent);
    const expected = (intervals * length(range)) / Math.max(length(extent), 1);
    if (expected <= limit && length(range) < tooLong) return { detail: "events", range };
  }
  return { detail: "bins", range: widen(view, BIN_MARGIN, extent) };
}

const fine = (block: BinBlock, view: Range, pixels: number): boolean =>
  block.bins.width / length(block) >= (BINS_PER_PIXEL * pixels) / length(view);

export interface FoundInterval extends Range {
  category: string;
  name: string | null;
}

/** The timeline's data of one profile: what is loaded, and what to load next for a view. */
export class TimelineData {
  /** Counts up when there is something new to draw. */
  readonly version = signal(0);
  readonly loading = signal(false);
  readonly error = signal<ApiError | null>(null);

  readonly extent: Range;
  /** Those of the lanes, and the part of communication that is waiting. */
  readonly categories: readonly string[];
  private waits: BinBlock[] = [];
  private waiting: AbortController | null = null;
  private spare = new Float32Array(0);
  private readonly communication: number;
  private readonly intervals: number;
  private events: EventBlock[] = [];
  private bins: BinBlock[] = [];
  private overview: BinBlock | null = null;
  private tooLong = Number.POSITIVE_INFINITY;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running: { controller: AbortController; detail: Detail; range: Range } | null = null;
  /** How many bins an answer holds at most, once that is known. */
  private most = Number.POSITIVE_INFINITY;
  private closed = false;

  constructor(
    private readonly profile: ProfileId,
    readonly meta: TimelineMeta,
    private readonly limit: number,
  ) {
    this.extent = { start: meta.start_ps, end: Math.max(meta.end_ps, meta.start_ps + 1) };
    this.categories = [...meta.categories, "communication_wait"];
    this.communication = meta.categories.indexOf("communication");
    this.intervals = meta.lanes.reduce((sum, lane) => sum + lane.intervals, 0);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.running?.controller.abort();
    this.waiting?.abort();
  }

  /** Says what the user looks at; loads what is missing for it after a moment of rest. */
  look(view: Range, pixels: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(
      () => {
        void this.load(view, Math.max(1, pixels));
        void this.loadWaits(view, Math.max(1, pixels));
      },
      this.overview ? DEBOUNCE_MS : 0,
    );
  }

  /** Where GPUs wait inside collectives; without it communication shows as a whole. */
  private async loadWaits(view: Range, pixels: number): Promise<void> {
    if (this.closed || this.communication < 0 || this.meta.lanes.length === 0) return;
    if (this.waits.some((block) => covers(block, view) && fine(block, view, pixels))) return;
    const range = this.waits.length ? widen(view, BIN_MARGIN, this.extent) : this.extent;
    this.waiting?.abort();
    const controller = new AbortController();
    this.waiting = controller;
    try {
      await whenVisible();
      const width = Math.min(Math.ceil(pixels * 2), WIDEST_BINS);
      const bins = await fetchWaits(this.profile, range.start, range.end, width, { signal: controller.signal });
      if (this.closed || controller.signal.aborted) return;
      const block = makeBinBlock(range, bins);
      // The overview stays, for views that nothing finer covers.
      this.waits = [block, ...this.waits].slice(0, BIN_BLOCKS - 1).concat(this.waits.slice(BIN_BLOCKS - 1).slice(-1));
      this.version.value += 1;
      if (!fine(block, view, pixels) && this.waits.length === 1) void this.loadWaits(view, pixels);
    } catch {
      // An extra: the timeline is right without it, only less detailed.
    }
  }

  private async load(view: Range, pixels: number): Promise<void> {
    if (this.closed || this.meta.lanes.length === 0) return;
    if (this.events.some((block) => covers(block, view))) return;
    const overviewFirst = !this.overview;
    const choice = overviewFirst
      ? ({ detail: "bins", range: this.extent } as const)
      : chooseDetail(view, this.extent, this.intervals, this.limit, this.tooLong);
    if (choice.detail === "bins" && !overviewFirst && this.sharpBins(view, pixels)) return;
    if (this.running && this.running.detail === choice.detail && covers(this.running.range, view)) return;

    this.running?.controller.abort();
    const controller = new AbortController();
    this.running = { controller, ...choice };
    this.loading.value = true;
    let again = false;
    try {
      await whenVisible();
      const options = { signal: controller.signal };
      const { start, end } = choice.range;
      if (choice.detail === "events") {
        const columns = await fetchEvents(this.profile, start, end, this.limit, options);
        if (columns.truncated) this.tooLong = Math.min(this.tooLong, length(choice.range));
        else this.keepEvents(indexEvents(columns, choice.range, this.meta.categories.length));
        again = columns.truncated;
      } else {
        // Many lanes: one bin a pixel of the screen is enough.
        const wide = pixels * (this.meta.lanes.length > 32 ? 1 : 2);
        const width = Math.min(Math.ceil(wide), WIDEST_BINS);
        const bins = await fetchBins(this.profile, start, end, width, options);
        if (bins.width < width) this.most = bins.width;
        this.keepBins(makeBinBlock(choice.range, bins), overviewFirst);
        again = overviewFirst;
      }
      this.error.value = null;
      this.version.value += 1;
    } catch (error) {
      if (!isAbort(error)) this.error.value = asApiError(error);
    } finally {
      if (this.running?.controller === controller) {
        this.running = null;
        this.loading.value = false;
        if (again) void this.load(view, pixels);
      }
    }
  }

  private keepEvents(block: EventBlock): void {
    this.events = [block, ...this.events.filter((old) => !covers(block, old))].slice(0, EVENT_BLOCKS);
  }

  private keepBins(block: BinBlock, overview: boolean): void {
    if (overview) this.overview = block;
    else this.bins = [block, ...this.bins].slice(0, BIN_BLOCKS);
  }

  private sharpBins(view: Range, pixels: number): boolean {
    // Of very many GPUs the server sends fewer bins than there are pixels: then that is as sharp as it gets.
    const best = this.most / length(widen(view, BIN_MARGIN, this.extent));
    const wanted = Math.min((BINS_PER_PIXEL * pixels) / length(view), 0.999 * best);
    return [...this.bins, this.overview].some(
      (block) => block && covers(block, view) && block.bins.width / length(block) >= wanted,
    );
  }

  private bestBins(view: Range): BinBlock | null {
    let best = this.overview;
    for (const block of this.bins) {
      if (covers(block, view) && (!best || block.bins.width / length(block) > best.bins.width / length(best)))
        best = block;
    }
    return best;
  }

  private block(view: Range): EventBlock | null {
    let best: EventBlock | null = null;
    for (const block of this.events) if (covers(block, view) && (!best || block.count < best.count)) best = block;
    return best;
  }

  /** The intervals of a lane when the view is drawn from intervals. */
  lane(view: Range, index: number): { lane: LaneEvents; names: string[] } | null {
    const block = this.block(view);
    const lane = block?.lanes.get(this.meta.lanes[index].id);
    return block && lane ? { lane, names: block.names } : null;
  }

  /** Categories that occur somewhere in the recording; all of them while that is not known. */
  present(): string[] {
    const overview = this.overview;
    if (!overview) return this.meta.categories;
    const found = new Set(overview.present.flat());
    const waits = this.waits.some(({ present }) => present.some((lane) => lane.length > 0));
    return this.meta.categories.flatMap((category, c) => {
      if (!found.has(c)) return [];
      return c === this.communication && waits ? [category, "communication_wait"] : [category];
    });
  }

  /** Takes the waiting out of a lane's communication: returns the categories with it among them. */
  private splitWaits(
    index: number,
    view: Range,
    width: number,
    out: Float32Array,
    active: readonly number[],
  ): readonly number[] {
    if (!active.includes(this.communication)) return active;
    let best: BinBlock | null = null;
    for (const block of this.waits) {
      const finer = !best || block.bins.width / length(block) > best.bins.width / length(best);
      if (covers(block, view) && index < block.bins.lanes && finer) best = block;
    }
    if (!best?.present[index].length) return active;
    if (this.spare.length !== width) this.spare = new Float32Array(width);
    coverFromBins(best, index, view, width, this.spare);
    const from = this.communication * width;
    const to = this.meta.categories.length * width;
    for (let x = 0; x < width; x++) {
      const wait = Math.min(this.spare[x], out[from + x]);
      out[to + x] = wait;
      out[from + x] -= wait;
    }
    return active.flatMap((c) => (c === this.communication ? [this.meta.categories.length, c] : [c]));
  }

  /** The same for several lanes at once: their mean. `scratch` is as large as `out`. */
  coverMean(
    lanes: readonly number[],
    view: Range,
    width: number,
    out: Float32Array,
    scratch: Float32Array,
  ): readonly number[] | null {
    if (lanes.length === 1) return this.cover(lanes[0], view, width, out);
    const seen = new Set<number>();
    out.fill(0);
    for (const lane of lanes) {
      const active = this.cover(lane, view, width, scratch);
      if (!active) return null;
      for (const c of active) {
        seen.add(c);
        const from = c * width;
        for (let x = from; x < from + width; x++) out[x] += scratch[x] / lanes.length;
      }
    }
    const wait = this.meta.categories.length;
    const order = (c: number) => (c === wait ? this.communication - 0.5 : c);
    return [...seen].sort((a, b) => order(a) - order(b));
  }

  /**
   * Fills `out[category * width + pixel]` for one lane; the last category is waiting inside collectives. Returns the categories whose rows it
   * wrote; the others are empty. Null when nothing is loaded.
   */
  cover(index: number, view: Range, width: number, out: Float32Array): readonly number[] | null {
    const block = this.block(view);
    if (block) {
      const lane = block.lanes.get(this.meta.lanes[index].id);
      return lane ? this.splitWaits(index, view, width, out, coverFromEvents(lane, view, width, out)) : [];
    }
    const bins = this.bestBins(view);
    if (!bins || index >= bins.bins.lanes) return null;
    return this.splitWaits(index, view, width, out, coverFromBins(bins, index, view, width, out));
  }

  /** The interval at a time, when intervals are loaded; undefined when they are not, null for none there. */
  intervalAt(view: Range, index: number, time: number): FoundInterval | null | undefined {
    const block = this.block(view);
    if (!block) return undefined;
    const lane = block.lanes.get(this.meta.lanes[index].id);
    const row = lane ? findEvent(lane, time) : -1;
    if (!lane || row < 0) return null;
    return {
      start: lane.start[row],
      end: lane.end[row],
      category: this.meta.categories[lane.category[row]] ?? "no_evidence",
      name: lane.name[row] === NO_NAME ? null : (block.names[lane.name[row]] ?? null),
    };
  }
}
