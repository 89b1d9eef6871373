import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ProfileId, TimelineMeta } from "../../api/types";
import { categoryFill, fitText, prepare } from "../../charts/canvas";
import { AXIS_HEIGHT, drawAxis, LanePainter, STEPS_HEIGHT, type StreamEvents } from "../../charts/draw";
import { savePng } from "../../charts/png";
import { layoutRows, rowAt, rowOfLane, rowsBetween } from "../../charts/rows";
import { themeOf } from "../../charts/theme";
import { length, pan, type Range } from "../../charts/viewport";
import { formatRange, shorten } from "../../format";
import { lang, plural, t, tId } from "../../i18n";
import { dark } from "../../state/host";
import { diagnosis, highlight, timelineCalls } from "../../state/store";
import { type FoundInterval, TimelineData } from "../../state/timeline";
import { analysed, extent, PS_PER_MS, setView, view } from "../../state/timelineView";
import { Icon } from "../../ui/Icon";
import { ProfilerNote } from "../../ui/ProfilerLink";
import { Failed } from "../../ui/Section";
import { Legend } from "../../ui/Swatch";
import { useSize } from "../../ui/useSize";
import { useMoment } from "./hooks";
import { Labels } from "./Labels";
import { keyActions, zoomByWheel } from "./moves";
import { NvmlLanes } from "./NvmlLanes";
import { RangePanel } from "./RangePanel";
import { Finder, useHits } from "./Search";
import { StockViewer } from "./StockViewer";
import { jumpToGap, markedLanes, selecting, selectionPs, setSelection, toggledHosts } from "./state";
import { useStreams } from "./streams";
import { TimelineTip, type TipContent, tipText } from "./TimelineTip";
import { Toolbar } from "./Toolbar";
import { describeLanes, summary } from "./words";

const TALLEST = 620;

interface Cursor {
  /** The row that it is on. */
  row: number;
  /** The place of the lane; of a folded host, its first. */
  lane: number;
  time: number;
  x: number;
  y: number;
  /** Set from the keyboard: announced, and kept when the pointer leaves. */
  keyboard: boolean;
}

interface TimelineProps {
  profile: ProfileId;
  meta: TimelineMeta;
  limit: number;
}

/** One lane a GPU over time: steps on top, work and gaps by cause below. */
export function Timeline({ profile, meta, limit }: TimelineProps) {
  const data = useMemo(() => new TimelineData(profile, meta, limit), [profile, meta, limit]);
  useEffect(() => () => data.close(), [data]);
  const root = useRef<HTMLDivElement>(null);
  const plot = useRef<HTMLDivElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const axisCanvas = useRef<HTMLCanvasElement>(null);
  const laneCanvas = useRef<HTMLCanvasElement>(null);
  const painter = useMemo(() => new LanePainter(), []);
  const { width, scale } = useSize(plot);
  const [scrollTop, setScrollTop] = useState(0);
  const [cursor, setCursor] = useState<Cursor | null>(null);
  const drag = useRef<{ x: number; range: Range; moved: boolean; from: number | null } | null>(null);
  const [announced, setAnnounced] = useState("");
  const [said, setSaid] = useState("");
  const laneIndex = (id: number) => meta.lanes.findIndex((lane) => lane.id === id);

  const language = lang.value;
  // Dependencies: the language of the words.
  const lanesText = useMemo(() => describeLanes(meta), [meta, language]);

  const range = view.value;
  const streams = useStreams(profile, meta, range);
  const toggled = toggledHosts.value;
  const { rows, total } = useMemo(
    () => layoutRows(meta.lanes, new Set(toggled), streams.counts),
    [meta, toggled, streams.counts],
  );
  const height = Math.min(total, TALLEST);
  const [first, last] = rowsBetween(rows, scrollTop - 60, scrollTop + height + 60);
  const { total: found, hits } = useHits(profile, range);
  const chosen = selectionPs();
  const marked = highlight.value;
  const version = data.version.value;
  // Dependencies: `version` says that the data has something new.
  const present = useMemo(() => data.present(), [data, version]);
  const isDark = dark.value;
  const inferred = diagnosis.value.data?.steps.source === "inferred";
  const withHost = new Set(meta.lanes.map((lane) => lane.host)).size > 1;

  useEffect(() => {
    if (range && width) data.look(range, width * scale);
  }, [data, range?.start, range?.end, width, scale]);

  // Dependencies: `version` says that the data has something new.
  useEffect(() => {
    if (!range || !width) return;
    const frame = requestAnimationFrame(() => {
      const theme = themeOf(isDark);
      const axis = axisCanvas.current && prepare(axisCanvas.current, width, AXIS_HEIGHT + STEPS_HEIGHT, scale);
      if (axis) drawAxis(axis, range, width, meta.steps, theme);
      const lanes = laneCanvas.current && prepare(laneCanvas.current, width, height, scale);
      if (!lanes) return;
      painter.draw(lanes, {
        data,
        view: range,
        width,
        height,
        scrollTop,
        rows,
        scale,
        theme,
        window: analysed.peek(),
        highlight: marked
          ? { start: marked.startMs * PS_PER_MS, end: marked.endMs * PS_PER_MS, lanes: markedLanes(meta, marked) }
          : null,
        selection: chosen,
        hits: hits.map((hit) => ({ lane: laneIndex(hit.lane), start: hit.start_ps, end: hit.end_ps })),
        cursor,
        streamEvents: streams.events,
      });
    });
    return () => cancelAnimationFrame(frame);
  }, [
    data,
    range?.start,
    range?.end,
    width,
    height,
    scale,
    scrollTop,
    version,
    isDark,
    marked,
    cursor,
    meta,
    rows,
    hits,
    chosen?.start,
    chosen?.end,
    streams.loaded,
  ]);

  // Not passive: with Ctrl or Cmd the page itself must not zoom.
  useEffect(() => {
    const element = plot.current;
    if (!element) return;
    const onWheel = (event: WheelEvent) => zoomByWheel(event, element);
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, []);

  const calls = timelineCalls.value;
  useEffect(() => {
    if (!calls) return;
    const reduced = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    document.getElementById("timeline")?.scrollIntoView({ behavior: reduced ? "auto" : "smooth", block: "nearest" });
    plot.current?.focus({ preventScroll: true });
    const asked = highlight.peek();
    const lane = asked ? Math.min(...markedLanes(meta, asked)) : Number.POSITIVE_INFINITY;
    const row = Number.isFinite(lane) ? rows[rowOfLane(rows, lane)] : undefined;
    if (row && scroller.current) scroller.current.scrollTop = row.top - height / 2;
  }, [calls]);

  useEffect(() => {
    const timer = setTimeout(() => setAnnounced(summary(meta)), 700);
    return () => clearTimeout(timer);
  }, [range?.start, range?.end, meta]);

  const at = (event: PointerEvent | MouseEvent): Cursor | null => {
    const box = laneCanvas.current?.getBoundingClientRect();
    if (!box || !range) return null;
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    if (x < 0 || x >= width || y < 0 || y >= height) return null;
    const row = rowAt(rows, y + scrollTop);
    if (row < 0 || !rows[row].lanes.length) return null;
    return { row, lane: rows[row].lanes[0], x, y, time: range.start + (x / width) * length(range), keyboard: false };
  };
  const timeAt = (event: PointerEvent): number => {
    const box = laneCanvas.current?.getBoundingClientRect();
    const share = box ? Math.min(Math.max((event.clientX - box.left) / width, 0), 1) : 0;
    return range ? range.start + share * length(range) : 0;
  };

  const onPointerDown = (event: PointerEvent) => {
    if (event.button !== 0 || !range) return;
    const from = event.shiftKey || selecting.peek() ? timeAt(event) : null;
    drag.current = { x: event.clientX, range, moved: false, from };
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
  };
  const onPointerMove = (event: PointerEvent) => {
    const held = drag.current;
    if (held && extent.peek()) {
      const share = (held.x - event.clientX) / width;
      if (Math.abs(held.x - event.clientX) > 3) held.moved = true;
      if (held.moved && held.from !== null) {
        setCursor(null);
        const to = timeAt(event);
        setSelection({ start: Math.min(held.from, to), end: Math.max(held.from, to) });
      } else if (held.moved) {
        setCursor(null);
        setView(pan(held.range, share, extent.peek()!));
      }
      return;
    }
    setCursor(at(event));
  };
  const onPointerUp = () => {
    drag.current = null;
  };

  const save = () => {
    const [axis, lanes] = [axisCanvas.current, laneCanvas.current];
    if (!axis || !lanes || !range) return;
    const theme = themeOf(isDark);
    const names = 150;
    const top = AXIS_HEIGHT + STEPS_HEIGHT;
    savePng({
      name: "timeline",
      title: `${t("timeline_title")} · ${formatRange(range.start / PS_PER_MS, range.end / PS_PER_MS)}`,
      width: names + width,
      height: top + height,
      theme,
      legend: present.map((category) => ({
        fill: (context) => categoryFill(context, category, theme),
        label: tId("category", category),
      })),
      draw: ({ context }) => {
        context.drawImage(axis, names, 0, width, top);
        context.drawImage(lanes, names, top, width, height);
        for (const each of rows.slice(first, last)) {
          const y = each.top - scrollTop;
          if (y < 0 || y + each.height > height) continue;
          const lane = meta.lanes[each.lanes[0]];
          const name =
            each.kind === "host" ? each.host : each.kind === "stream" ? `   ${streams.name(each)}` : lane.label;
          context.fillStyle = each.kind === "stream" ? theme.muted : theme.text;
          context.fillText(fitText(context, name, names - 8), 0, top + y + each.height / 2);
        }
      },
    });
  };

  const moveCursor = (by: number, edge: -1 | 0 | 1) => {
    if (!range) return;
    const usable = rows.flatMap(({ kind, lanes }, i) => (kind !== "stream" && lanes.length ? [i] : []));
    const now = Math.max(0, usable.indexOf(cursor?.row ?? -1));
    const row = usable[Math.min(Math.max(now + by, 0), usable.length - 1)];
    if (row === undefined) return;
    const lane = rows[row].lanes[0];
    let time =
      cursor && cursor.time >= range.start && cursor.time < range.end ? cursor.time : (range.start + range.end) / 2;
    if (edge !== 0) {
      const at = data.intervalAt(range, lane, time);
      const pixel = length(range) / width;
      if (at) time = edge > 0 ? at.end + 1 : at.start - 1;
      else time += edge * pixel;
      time = Math.min(Math.max(time, range.start), range.end - 1);
    }
    const { top, height: tall } = rows[row];
    if (scroller.current && (top < scrollTop || top + tall > scrollTop + height))
      scroller.current.scrollTop = top - height / 2;
    const y = top - (scroller.current?.scrollTop ?? scrollTop) + tall / 2;
    setCursor({ row, lane, time, x: ((time - range.start) / length(range)) * width, y, keyboard: true });
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = keyActions(
      (lanes, edge) => moveCursor(cursor || lanes < 0 ? lanes : 0, edge),
      () => {
        setCursor(null);
        setSelection(null);
        highlight.value = null;
      },
      (back) =>
        void jumpToGap(profile, meta, back).then((jump) => setSaid(jump === "none" ? t("timeline_no_gap") : "")),
      () => setSelection(view.peek()),
    );
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };

  const row = cursor ? rows[cursor.row] : undefined;
  // A stream or a folded host has no single answer of the lane.
  const single = row?.kind === "gpu";
  const moment = useMoment(profile, cursor && single ? meta.lanes[cursor.lane].id : null, cursor ? cursor.time : null);
  let tip: TipContent | null = null;
  if (cursor && range && row) {
    const interval =
      row.kind === "stream"
        ? streamInterval(streams.events(row), cursor.time)
        : single
          ? data.intervalAt(range, cursor.lane, cursor.time)
          : undefined;
    const lane = meta.lanes[cursor.lane];
    const gpu = withHost ? `${shorten(lane.host, 24)} · ${lane.label}` : lane.label;
    tip = {
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
    if (!tip.interval && !tip.moment && !tip.mixture.length) tip = null;
  }
  const box = tip ? laneCanvas.current?.getBoundingClientRect() : null;
  const spoken = tip && cursor?.keyboard ? tipText(tip) : announced;

  if (!meta.lanes.length) return <p class="state">{t("timeline_none")}</p>;
  if (meta.lanes.every((lane) => lane.intervals === 0)) return <p class="state">{t("timeline_nothing")}</p>;
  return (
    <div class="timeline" ref={root}>
      <Toolbar meta={meta} />
      <Finder profile={profile} meta={meta} total={found} say={setSaid} />
      {said ? (
        <p class="state" role="status">
          {said}
        </p>
      ) : null}
      {meta.clock && !meta.clock.common ? <p class="state notice">{t("timeline_clocks_apart")}</p> : null}
      {data.error.value ? (
        <Failed error={data.error.value} retry={() => range && data.look(range, width * scale)} />
      ) : null}
      <p class="hidden" id="timeline-help">
        {t("timeline_help")}
      </p>
      <div class="tl-head">
        <span class="tl-steps-label" title={inferred ? t("steps_inferred_hint") : undefined}>
          {meta.steps.length ? t(inferred ? "steps_found" : "steps") : ""}
        </span>
        <canvas
          ref={axisCanvas}
          aria-hidden="true"
          style={{ width: `${width}px`, height: `${AXIS_HEIGHT + STEPS_HEIGHT}px` }}
        />
      </div>
      <div
        class="tl-scroll"
        ref={scroller}
        tabIndex={total > height ? 0 : undefined}
        style={{ height: `${height}px` }}
        onScroll={(event) => setScrollTop(event.currentTarget.scrollTop)}
      >
        <Labels meta={meta} rows={rows.slice(first, last)} total={total} streamName={streams.name} />
        <div
          class={selecting.value ? "tl-plot tl-selecting" : "tl-plot"}
          ref={plot}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: it is operated by the keyboard
          tabIndex={0}
          role="application"
          aria-label={t("timeline_label")}
          aria-describedby="timeline-help"
          style={{ height: `${height}px` }}
          onPointerDown={onPointerDown}
          onPointerMove={onPointerMove}
          onPointerUp={onPointerUp}
          onPointerCancel={onPointerUp}
          onPointerLeave={() => !cursor?.keyboard && setCursor(null)}
          onDblClick={() => setView(null)}
          onKeyDown={onKeyDown}
          onBlur={() => setCursor(null)}
        >
          <canvas ref={laneCanvas} aria-hidden="true" style={{ width: `${width}px`, height: `${height}px` }} />
        </div>
      </div>
      {range && width ? <NvmlLanes profile={profile} meta={meta} range={range} width={width} scale={scale} /> : null}
      {tip && cursor && box ? <TimelineTip content={tip} x={box.left + cursor.x} y={box.top + cursor.y} /> : null}
      <p class="hidden" aria-live="polite">
        {spoken}
      </p>
      <div class="tl-foot">
        <div class="legend-row">
          <Legend categories={present} />
          <button type="button" class="quiet save" onClick={save}>
            <Icon name="save" />
            PNG
            <span class="hidden"> {t("timeline_title")}</span>
          </button>
        </div>
        <p class="muted hint">
          {t("timeline_hint")}
          {streams.crowded ? ` · ${t("timeline_streams_crowded")}` : ""}
          {data.loading.value ? ` · ${t("loading_details")}` : ""}
        </p>
      </div>
      <RangePanel profile={profile} meta={meta} />
      <StockViewer meta={meta} />
      <ProfilerNote />
      <p class="hidden">{lanesText}</p>
    </div>
  );
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
