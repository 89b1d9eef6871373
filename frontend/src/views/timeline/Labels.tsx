import { useMemo } from "preact/hooks";
import type { TimelineMeta } from "../../api/types";
import type { Row } from "../../charts/rows";
import { formatDuration, fullText, shorten } from "../../format";
import { plural, t } from "../../i18n";
import { PS_PER_MS } from "../../state/timelineView";
import { openStreams, toggle, toggledHosts } from "./state";

/** What is known about the clock of a lane, where it is not the only one. */
export function clockNote(meta: TimelineMeta, index: number): string {
  const { offset_ps: offset, offset_error_ps: error, host } = meta.lanes[index];
  if (!meta.clock?.reference || meta.clock.reference === host) return "";
  if (error === null || error === undefined) return t("timeline_clock_own");
  return t("timeline_clock_aligned", {
    offset: formatDuration((offset ?? 0) / PS_PER_MS, 4),
    error: formatDuration(error / PS_PER_MS),
  });
}

interface LabelsProps {
  meta: TimelineMeta;
  rows: readonly Row[];
  total: number;
  streamName: (row: Row) => string;
}

/** The names beside the rows; a host folds, a GPU opens its streams. */
export function Labels({ meta, rows, total, streamName }: LabelsProps) {
  const alone = useMemo(() => {
    const counts = new Map<string, number>();
    for (const { host } of meta.lanes) counts.set(host, (counts.get(host) ?? 0) + 1);
    return new Set(counts.size > 1 ? [...counts].flatMap(([host, count]) => (count === 1 ? [host] : [])) : []);
  }, [meta]);
  return (
    <div class="tl-labels" style={{ height: `${total}px` }}>
      {rows.map((row) => {
        const style = { top: `${row.top}px`, height: `${row.height}px` };
        if (row.kind === "host") {
          return (
            <button
              key={row.key}
              type="button"
              class="tl-label tl-host"
              style={style}
              aria-expanded={row.open}
              title={fullText(row.host)}
              onClick={() => toggle(toggledHosts, row.host)}
            >
              {row.open ? "▾" : "▸"} {shorten(row.host, 16)}
            </button>
          );
        }
        if (row.kind === "stream") {
          return (
            <span key={row.key} class="tl-label tl-stream" style={style} title={fullText(streamName(row))}>
              {shorten(streamName(row), 20)}
            </span>
          );
        }
        const lane = meta.lanes[row.lanes[0]];
        const facts = [lane.host, lane.name, plural("intervals", lane.intervals), clockNote(meta, row.lanes[0])];
        return (
          <button
            key={row.key}
            type="button"
            class="tl-label"
            style={style}
            aria-expanded={row.open}
            title={`${fullText(facts.filter(Boolean).join(" · "))}\n${t("timeline_streams_hint")}`}
            onClick={() => toggle(openStreams, String(lane.id))}
          >
            {row.open ? "▾" : "▸"} {alone.has(lane.host) ? `${shorten(lane.host, 12)} · ` : ""}
            {shorten(lane.label, 18)}
          </button>
        );
      })}
    </div>
  );
}
