import { useState } from "preact/hooks";
import { profilerRun, traceViewerUrl } from "../../api/profiler";
import type { TimelineMeta } from "../../api/types";
import { shorten } from "../../format";
import { t } from "../../i18n";
import { offsetMs, profiler, profilerHostList, selected } from "../../state/store";
import { PS_PER_MS, view } from "../../state/timelineView";
import { matchHost } from "../../ui/ProfilerLink";

/** The stock trace viewer under the timeline, at what is shown; only when somebody asks for it. */
export function StockViewer({ meta }: { meta: TimelineMeta }) {
  const [address, setAddress] = useState<string | null>(null);
  const [wanted, setWanted] = useState<string | null>(null);
  const profile = selected.value;
  if (!profile || !profiler.value?.runs.has(profilerRun(profile))) return null;
  const files = [...new Set(meta.lanes.map(({ hosts_file }) => hosts_file))];
  const file = wanted ?? files[0] ?? "";
  const host = matchHost(profilerHostList.value, file);
  if (!host) return null;
  const show = () => {
    const range = view.peek();
    if (!range) return;
    const shift = offsetMs(meta, meta.lanes.find(({ hosts_file }) => hosts_file === file)?.host ?? "");
    setAddress(traceViewerUrl(profile, host, range.start / PS_PER_MS - shift, range.end / PS_PER_MS - shift));
  };
  return (
    <div class="stock">
      <div class="toolbar">
        <button type="button" aria-expanded={address !== null} onClick={show}>
          {t(address ? "timeline_stock_follow" : "timeline_stock_show")}
        </button>
        {address ? (
          <button type="button" class="quiet" onClick={() => setAddress(null)}>
            {t("timeline_stock_hide")}
          </button>
        ) : null}
        {files.length > 1 ? (
          <label class="tool">
            {t("timeline_stock_host")}
            <select
              value={file}
              onChange={(event) => {
                setWanted(event.currentTarget.value);
              }}
            >
              {files.map((name) => (
                <option key={name} value={name}>
                  {shorten(name, 60)}
                </option>
              ))}
            </select>
          </label>
        ) : null}
      </div>
      {address ? <iframe class="stock-frame" title={t("timeline_stock_title")} src={address} key={address} /> : null}
    </div>
  );
}
