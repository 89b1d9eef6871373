import type { TimelineMeta } from "../../api/types";
import { length } from "../../charts/viewport";
import { formatDuration, formatRange } from "../../format";
import { t } from "../../i18n";
import { defaultView, extent, PS_PER_MS, setView, view } from "../../state/timelineView";
import { ProfilerLink } from "../../ui/ProfilerLink";
import { panBy, ZOOM_KEY, zoomBy } from "./moves";
import { selecting, setSelection } from "./state";

function MoveButton(props: { sign: string; name: string; keys: string; act: () => void }) {
  return (
    <button type="button" onClick={props.act} title={`${props.name} (${props.keys})`} aria-label={props.name}>
      {props.sign}
    </button>
  );
}

/** Zooming and moving by buttons, what is shown, and the way into the stock trace viewer. */
export function Toolbar({ meta }: { meta: TimelineMeta }) {
  const range = view.value;
  const host = meta.lanes[0]?.hosts_file ?? meta.lanes[0]?.host ?? "";
  const shift = (meta.lanes[0]?.offset_ps ?? 0) / PS_PER_MS;
  const more = defaultView.value && extent.value && length(defaultView.value) < length(extent.value) * 0.999;
  return (
    <div class="toolbar">
      <div class="buttons" role="group" aria-label={t("timeline_controls")}>
        <MoveButton sign="+" name={t("zoom_in")} keys="W" act={() => zoomBy(ZOOM_KEY)} />
        <MoveButton sign="−" name={t("zoom_out")} keys="S" act={() => zoomBy(1 / ZOOM_KEY)} />
        <MoveButton sign="←" name={t("pan_left")} keys="A" act={() => panBy(-0.5)} />
        <MoveButton sign="→" name={t("pan_right")} keys="D" act={() => panBy(0.5)} />
        <button type="button" onClick={() => setView(null)} title="0">
          {t("zoom_reset")}
        </button>
        <button
          type="button"
          aria-pressed={selecting.value}
          title={t("timeline_select_hint")}
          onClick={() => {
            selecting.value = !selecting.value;
          }}
        >
          {t("timeline_select")}
        </button>
        <button type="button" title="R" onClick={() => setSelection(view.peek())}>
          {t("timeline_account_shown")}
        </button>
        {more ? (
          <button type="button" onClick={() => setView(extent.peek())}>
            {t("zoom_all")}
          </button>
        ) : null}
      </div>
      {range ? (
        <>
          <span class="readout">
            {formatRange(range.start / PS_PER_MS, range.end / PS_PER_MS)}{" "}
            <span class="muted">({formatDuration(length(range) / PS_PER_MS)})</span>
          </span>
          <ProfilerLink host={host} startMs={range.start / PS_PER_MS - shift} endMs={range.end / PS_PER_MS - shift} />
        </>
      ) : null}
    </div>
  );
}
