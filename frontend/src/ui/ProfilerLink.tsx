import type { ComponentChildren } from "preact";
import { profilerRun, traceViewerUrl } from "../api/profiler";
import { t } from "../i18n";
import { profiler, profilerHostList, selected, selectedInfo } from "../state/store";
import { Icon } from "./Icon";

/** The Profiler's host for one of ours: the same name, or the only one there is. */
export function matchHost(known: readonly string[], host: string): string | null {
  if (known.includes(host)) return host;
  return known.length === 1 ? known[0] : null;
}

/** A link that opens the stock trace viewer at a range; nothing where it could not show it. */
export function ProfilerLink(props: { host: string; startMs: number; endMs: number; children?: ComponentChildren }) {
  const profile = selected.value;
  if (!profile || !profiler.value?.runs.has(profilerRun(profile))) return null;
  const host = matchHost(profilerHostList.value, props.host);
  if (!host) return null;
  return (
    <a class="action" href={traceViewerUrl(profile, host, props.startMs, props.endMs)} target="_blank" rel="noopener">
      <Icon name="open" />
      {props.children ?? t("open_profiler")}
    </a>
  );
}

/** Why there are no links into the Profiler, where there are none. */
export function ProfilerNote() {
  const profile = selected.value;
  // What was recorded beside training is no trace: nobody expects it there.
  if (!profile || profiler.value === undefined || selectedInfo.value?.format === "telemetry") return null;
  if (profiler.value === null) return <p class="muted">{t("profiler_missing")}</p>;
  if (!profiler.value.runs.has(profilerRun(profile))) return <p class="muted">{t("profiler_unknown_run")}</p>;
  return null;
}
