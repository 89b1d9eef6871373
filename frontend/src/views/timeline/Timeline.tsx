import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ProfileId, TimelineMeta } from "../../api/types";
import { prepare } from "../../charts/canvas";
import { AXIS_HEIGHT, drawAxis, LanePainter, STEPS_HEIGHT } from "../../charts/draw";
import { layoutRows, rowOfLane, rowsBetween } from "../../charts/rows";
import { themeOf } from "../../charts/theme";
import { length, pan, type Range } from "../../charts/viewport";
import { lang, t } from "../../i18n";
import { dark } from "../../state/host";
import { diagnosis, highlight, timelineCalls } from "../../state/store";
import { TimelineData } from "../../state/timeline";
import { analysed, extent, PS_PER_MS, setView, view } from "../../state/timelineView";
import { Icon } from "../../ui/Icon";
import { ProfilerNote } from "../../ui/ProfilerLink";
import { Failed } from "../../ui/Section";
import { Legend } from "../../ui/Swatch";
import { useSize } from "../../ui/useSize";
import { type Cursor, cursorAt, movedCursor, type Shown } from "./cursor";
import { Labels } from "./Labels";
import { useMoment } from "./moment";
import { keyActions, zoomByWheel } from "./moves";
import { NvmlLanes } from "./NvmlLanes";
import { savePicture } from "./picture";
import { RangePanel } from "./RangePanel";
import { Finder, useHits } from "./Search";
import { StockViewer } from "./StockViewer";
import { jumpToGap, markedLanes, selecting, selectionPs, setSelection, toggledHosts } from "./state";
import { useStreams } from "./streams";
import { TimelineTip, tipText } from "./TimelineTip";
import { Toolbar } from "./Toolbar";
import { tipContent } from "./tip";
import { describeLanes, summary } from "./words";

const TALLEST = 620;

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

  const shown: Shown | null = range ? { rows, range, width, height, scrollTop } : null;
  const at = (event: PointerEvent | MouseEvent): Cursor | null => {
    const box = laneCanvas.current?.getBoundingClientRect();
    return box && shown ? cursorAt(shown, event.clientX - box.left, event.clientY - box.top) : null;
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
    if (axis && lanes && shown) savePicture(shown, { axis, lanes, meta, present, streamName: streams.name });
  };

  const moveCursor = (by: number, edge: -1 | 0 | 1) => {
    if (!shown) return;
    const moved = movedCursor(shown, cursor, by, edge, (lane, time) => data.intervalAt(shown.range, lane, time));
    if (!moved) return;
    const { top, height: tall } = rows[moved.row];
    if (scroller.current && (top < scrollTop || top + tall > scrollTop + height))
      scroller.current.scrollTop = top - height / 2;
    setCursor({ ...moved, y: moved.y - (scroller.current?.scrollTop ?? scrollTop) });
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

  // Keys work as soon as the view is open: where the page has the focus, the lanes take it; where the view's own tab has
  // it, letters go to the lanes and take the focus along.
  const drawn = width > 0;
  useEffect(() => {
    if (drawn && document.hasFocus() && document.activeElement === document.body)
      plot.current?.focus({ preventScroll: true });
  }, [drawn]);
  useEffect(() => {
    const tab = document.querySelector<HTMLElement>('[role="tab"][aria-selected="true"]');
    const forward = (event: KeyboardEvent) => {
      if (event.key.length > 1 || event.key === " ") return;
      onKeyDown(event);
      if (event.defaultPrevented) plot.current?.focus({ preventScroll: true });
    };
    tab?.addEventListener("keydown", forward);
    return () => tab?.removeEventListener("keydown", forward);
  });

  const row = cursor ? rows[cursor.row] : undefined;
  // A stream or a folded host has no single answer of the lane.
  const single = row?.kind === "gpu";
  const moment = useMoment(profile, cursor && single ? meta.lanes[cursor.lane].id : null, cursor ? cursor.time : null);
  const tip = cursor && shown ? tipContent({ cursor, shown, data, meta, streams, moment, withHost }) : null;
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
