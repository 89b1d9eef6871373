import type { MomentDetails, TimelineMeta } from "../../api/types";
import type { StreamEvents } from "../../charts/draw";
import { length, type Range } from "../../charts/viewport";
import { shorten } from "../../format";
import { plural } from "../../i18n";
import type { FoundInterval, TimelineData } from "../../state/timeline";
import type { Cursor, Shown } from "./cursor";
import type { useStreams } from "./streams";
import type { TipContent } from "./TimelineTip";

interface Known {
  cursor: Cursor;
  shown: Shown;
  data: TimelineData;
  meta: TimelineMeta;
  streams: ReturnType<typeof useStreams>;
  /** What the server said about the moment. */
  moment: MomentDetails | null;
  /** Whether a GPU's name needs its host. */
  withHost: boolean;
}

/** What is known of the place under the cursor; null: nothing. */
export function tipContent({ cursor, shown, data, meta, streams, moment, withHost }: Known): TipContent | null {
  const { range, width } = shown;
  const row = shown.rows[cursor.row];
  if (!row) return null;
  const interval =
    row.kind === "stream"
      ? streamInterval(streams.events(row), cursor.time)
      : row.kind === "gpu"
        ? data.intervalAt(range, cursor.lane, cursor.time)
        : undefined;
  const lane = meta.lanes[cursor.lane];
  const gpu = withHost ? `${shorten(lane.host, 24)} · ${lane.label}` : lane.label;
  const tip: TipContent = {
    gpu:
      row.kind === "host"
        ? `${shorten(lane.host, 24)} · ${plural("timeline_lanes", row.lanes.length)}`
        : row.kind === "stream"
          ? `${gpu} · ${shorten(streams.name(row), 40)}`
          : gpu,
    time: cursor.time,
    interval: interval ?? null,
    mixture: interval === undefined ? mixtureAt(data, row.lanes, cursor.time, range, width) : [],
    moment,
  };
  return tip.interval || tip.moment || tip.mixture.length ? tip : null;
}

/** What fills the pixel under the pointer, largest first. */
function mixtureAt(
  data: TimelineData,
  lanes: readonly number[],
  time: number,
  range: Range,
  width: number,
): TipContent["mixture"] {
  const { categories } = data;
  const pixel = length(range) / width;
  const out = new Float32Array(categories.length);
  const scratch = new Float32Array(categories.length);
  const at = { start: time - pixel / 2, end: time + pixel / 2 };
  if (!data.coverMean(lanes, at, 1, out, scratch)) return [];
  return categories
    .map((category, i) => ({ category, share: Math.min(1, out[i]) }))
    .filter((part) => part.share > 0)
    .sort((a, b) => b.share - a.share)
    .slice(0, 6);
}

/** The event of a stream at a time. */
function streamInterval(events: StreamEvents | null, time: number): FoundInterval | null {
  if (!events) return null;
  const i = events.start.findIndex((start, k) => start <= time && time < events.end[k]);
  if (i < 0) return null;
  return { start: events.start[i], end: events.end[i], category: events.category[i], name: events.name[i] };
}
