import { useEffect, useMemo, useState } from "preact/hooks";
import { fetchStreams, type StreamsAnswer } from "../../api/timelineRange";
import type { ProfileId, TimelineMeta } from "../../api/types";
import type { StreamEvents } from "../../charts/draw";
import type { Row } from "../../charts/rows";
import { length, type Range, widen } from "../../charts/viewport";
import { t } from "../../i18n";
import { extent } from "../../state/timelineView";
import { openStreams } from "./state";

const MOST_EVENTS = 6000;
const REST_MS = 150;
const MOST_OPEN = 8;

interface Loaded {
  answer: StreamsAnswer;
  range: Range;
  byStream: StreamEvents[];
}

function split(answer: StreamsAnswer, categories: readonly string[]): StreamEvents[] {
  // Under the streams the threads that launched their work.
  const found = [...answer.streams, ...answer.launches.threads].map(() => ({
    start: [] as number[],
    end: [] as number[],
    category: [] as string[],
    name: [] as string[],
  }));
  const { stream, start_ps, end_ps, category, name } = answer.events;
  for (let i = 0; i < stream.length; i++) {
    const into = found[stream[i]];
    into.start.push(start_ps[i]);
    into.end.push(end_ps[i]);
    into.category.push(categories[category[i]]);
    into.name.push(answer.names[name[i]] ?? "");
  }
  const { launches } = answer;
  for (let i = 0; i < launches.thread.length; i++) {
    const into = found[answer.streams.length + launches.thread[i]];
    into.start.push(launches.start_ps[i]);
    into.end.push(launches.end_ps[i]);
    into.category.push("host_call");
    into.name.push(launches.names[launches.name[i]] ?? "");
  }
  return found;
}

/** What a row below a GPU is called: a stream, or a thread of the host. */
export function rowName({ streams, launches }: StreamsAnswer, row: number): string {
  if (row < streams.length) return streams[row].name;
  const thread = launches.threads[row - streams.length];
  return thread === undefined ? "" : t("timeline_launches", { thread });
}

/** The streams of the GPUs that were opened, loaded for what is shown. */
export function useStreams(profile: ProfileId, meta: TimelineMeta, range: Range | null) {
  const [loaded, setLoaded] = useState<ReadonlyMap<number, Loaded>>(new Map());
  const open = openStreams.value;
  const lanes = useMemo(
    () =>
      open
        .map(Number)
        .filter((id) => meta.lanes.some((lane) => lane.id === id))
        .slice(0, MOST_OPEN),
    [open, meta],
  );
  useEffect(() => {
    if (!range || !lanes.length) return;
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      const wide = extent.peek() ? widen(range, 0.5, extent.peek()!) : range;
      for (const lane of lanes) {
        try {
          const options = { signal: controller.signal };
          let asked = wide;
          let answer = await fetchStreams(profile, lane, wide.start, wide.end, MOST_EVENTS, options);
          if (answer.truncated && length(wide) > length(range)) {
            asked = range;
            answer = await fetchStreams(profile, lane, range.start, range.end, MOST_EVENTS, options);
          }
          const entry = { answer, range: asked, byStream: split(answer, meta.categories) };
          setLoaded((before) => new Map(before).set(lane, entry));
        } catch {
          // The lane itself still shows what its streams did together.
        }
      }
    }, REST_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [profile, lanes, range?.start, range?.end]);
  const counts = useMemo(
    () => new Map(lanes.map((lane) => [lane, loaded.get(lane)?.byStream.length ?? 0])),
    [lanes, loaded],
  );
  return {
    counts,
    loaded,
    events: (row: Row): StreamEvents | null =>
      loaded.get(meta.lanes[row.lanes[0]]?.id)?.byStream[row.stream ?? -1] ?? null,
    name: (row: Row): string => {
      const found = loaded.get(meta.lanes[row.lanes[0]]?.id);
      return found && row.stream !== undefined ? rowName(found.answer, row.stream) : "";
    },
    crowded: lanes.some((lane) => loaded.get(lane)?.answer.truncated),
  };
}
