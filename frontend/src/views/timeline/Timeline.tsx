import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ProfileId, TimelineMeta } from "../../api/types";
import { prepare } from "../../charts/canvas";
import { AXIS_HEIGHT, drawAxis, LanePainter, laneLayout, STEPS_HEIGHT } from "../../charts/draw";
import { themeOf } from "../../charts/theme";
import { length, pan, type Range } from "../../charts/viewport";
import { fullText, shorten } from "../../format";
import { lang, plural, t } from "../../i18n";
import { dark } from "../../state/host";
import { diagnosis, type Highlight, highlight, timelineCalls } from "../../state/store";
import { TimelineData } from "../../state/timeline";
import { analysed, extent, PS_PER_MS, setView, view } from "../../state/timelineView";
import { Failed } from "../../ui/Section";
import { Legend } from "../../ui/Swatch";
import { useSize } from "../../ui/useSize";
import { useMoment } from "./hooks";
import { keyActions, zoomByWheel } from "./moves";
import { TimelineTip, type TipContent, tipText } from "./TimelineTip";
import { Toolbar } from "./Toolbar";
import { describeLanes, summary } from "./words";

const TALLEST = 620;

interface Cursor {
  lane: number;
  time: number;
  x: number;
  y: number;
  /** Set from the keyboard: announced, and kept when the pointer leaves. */
  keyboard: boolean;
}

/** The lanes that evidence is about. */
const markedLanes = ({ lanes }: TimelineMeta, { host, gpus }: Highlight): Set<number> =>
  new Set(
    lanes.flatMap((lane, i) => ((!gpus.length || gpus.includes(lane.gpu)) && (!host || lane.host === host) ? [i] : [])),
  );

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
  const drag = useRef<{ x: number; range: Range; moved: boolean } | null>(null);
  const [announced, setAnnounced] = useState("");

  // Known with the overview, which comes once.
  const overviewed = data.version.value > 0;
  const present = useMemo(() => data.present(), [data, overviewed]);

  const language = lang.value;
  // Dependencies: the language of the words.
  const lanesText = useMemo(() => describeLanes(meta), [meta, language]);

  const layout = laneLayout(meta.lanes.length);
  const total = meta.lanes.length * layout.pitch;
  const height = Math.min(total, TALLEST);
  const range = view.value;
  const marked = highlight.value;
  const version = data.version.value;
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
        layout,
        scale,
        theme,
        window: analysed.peek(),
        highlight: marked
          ? { start: marked.startMs * PS_PER_MS, end: marked.endMs * PS_PER_MS, lanes: markedLanes(meta, marked) }
          : null,
        cursor,
      });
    });
    return () => cancelAnimationFrame(frame);
  }, [data, range?.start, range?.end, width, height, scale, scrollTop, version, isDark, marked, cursor, meta]);

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
    document.getElementById("timeline")?.scrollIntoView({ behavior: reduced ? "auto" : "smooth", block: "start" });
    plot.current?.focus({ preventScroll: true });
    const asked = highlight.peek();
    const lane = asked ? Math.min(...markedLanes(meta, asked)) : Number.POSITIVE_INFINITY;
    if (Number.isFinite(lane) && scroller.current) scroller.current.scrollTop = lane * layout.pitch - height / 2;
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
    const inLane = (y + scrollTop) % layout.pitch;
    const lane = Math.floor((y + scrollTop) / layout.pitch);
    if (x < 0 || x >= width || y < 0 || y >= height || lane >= meta.lanes.length || inLane > layout.height) return null;
    return { lane, x, y, time: range.start + (x / width) * length(range), keyboard: false };
  };

  const onPointerDown = (event: PointerEvent) => {
    if (event.button !== 0 || !range) return;
    drag.current = { x: event.clientX, range, moved: false };
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
  };
  const onPointerMove = (event: PointerEvent) => {
    const held = drag.current;
    if (held && extent.peek()) {
      const share = (held.x - event.clientX) / width;
      if (Math.abs(held.x - event.clientX) > 3) held.moved = true;
      if (held.moved) {
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

  const moveCursor = (lanes: number, edge: -1 | 0 | 1) => {
    if (!range) return;
    const lane = Math.min(Math.max((cursor?.lane ?? 0) + lanes, 0), meta.lanes.length - 1);
    let time =
      cursor && cursor.time >= range.start && cursor.time < range.end ? cursor.time : (range.start + range.end) / 2;
    if (edge !== 0) {
      const found = data.intervalAt(range, lane, time);
      const pixel = length(range) / width;
      if (found) time = edge > 0 ? found.end + 1 : found.start - 1;
      else time += edge * pixel;
      time = Math.min(Math.max(time, range.start), range.end - 1);
    }
    const y = lane * layout.pitch - scrollTop + layout.height / 2;
    setCursor({ lane, time, x: ((time - range.start) / length(range)) * width, y, keyboard: true });
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = keyActions(
      (lanes, edge) => moveCursor(cursor || lanes < 0 ? lanes : 0, edge),
      () => setCursor(null),
    );
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };

  const moment = useMoment(profile, cursor ? meta.lanes[cursor.lane].id : null, cursor ? cursor.time : null);
  let tip: TipContent | null = null;
  if (cursor && range) {
    const interval = data.intervalAt(range, cursor.lane, cursor.time);
    const lane = meta.lanes[cursor.lane];
    tip = {
      gpu: withHost ? `${shorten(lane.host, 24)} · ${lane.label}` : lane.label,
      time: cursor.time,
      interval: interval ?? null,
      mixture: interval === undefined ? mixtureAt(data, cursor, range, width) : [],
      moment,
    };
    if (!tip.interval && !tip.moment && !tip.mixture.length) tip = null;
  }
  const box = tip ? laneCanvas.current?.getBoundingClientRect() : null;
  const spoken = tip && cursor?.keyboard ? tipText(tip) : announced;

  if (!meta.lanes.length) return <p class="state">{t("timeline_none")}</p>;
  if (meta.lanes.every((lane) => lane.intervals === 0)) return <p class="state">{t("timeline_nothing")}</p>;
  const firstLane = Math.max(0, Math.floor(scrollTop / layout.pitch) - 1);
  const lastLane = Math.min(meta.lanes.length, Math.ceil((scrollTop + height) / layout.pitch) + 1);
  return (
    <div class="timeline" ref={root}>
      <Toolbar meta={meta} />
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
        <div class="tl-labels" style={{ height: `${total}px` }} aria-hidden="true">
          {meta.lanes.slice(firstLane, lastLane).map((lane, i) => (
            <span
              key={lane.id}
              style={{ top: `${(firstLane + i) * layout.pitch}px`, height: `${layout.height}px` }}
              title={fullText([lane.host, lane.name, plural("intervals", lane.intervals)].filter(Boolean).join(" · "))}
            >
              {withHost ? `${shorten(lane.host, 12)} · ` : ""}
              {shorten(lane.label, 18)}
            </span>
          ))}
        </div>
        <div
          class="tl-plot"
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
      {tip && cursor && box ? <TimelineTip content={tip} x={box.left + cursor.x} y={box.top + cursor.y} /> : null}
      <p class="hidden" aria-live="polite">
        {spoken}
      </p>
      <div class="tl-foot">
        <Legend categories={present} />
        <p class="muted hint">
          {t("timeline_hint")}
          {data.loading.value ? ` · ${t("loading_details")}` : ""}
        </p>
      </div>
      <p class="hidden">{lanesText}</p>
    </div>
  );
}

/** What fills the pixel under the pointer, largest first. */
function mixtureAt(data: TimelineData, cursor: Cursor, range: Range, width: number): TipContent["mixture"] {
  const { categories } = data.meta;
  const pixel = length(range) / width;
  const out = new Float32Array(categories.length);
  if (!data.cover(cursor.lane, { start: cursor.time - pixel / 2, end: cursor.time + pixel / 2 }, 1, out)) return [];
  return categories
    .map((category, i) => ({ category, share: Math.min(1, out[i]) }))
    .filter((part) => part.share > 0)
    .sort((a, b) => b.share - a.share)
    .slice(0, 6);
}
