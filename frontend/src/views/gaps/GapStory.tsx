import type { Gap } from "../../api/gaps";
import { CAUSES, cssBackground } from "../../charts/palette";
import { formatInt, formatMeasured, formatPercent, fullText, shorten } from "../../format";
import { t, tId } from "../../i18n";
import { dark } from "../../state/host";
import { metaResource, offsetMs, showOnTimeline } from "../../state/store";
import { gpuName } from "../../ui/gpu";
import { ProfilerLink } from "../../ui/ProfilerLink";
import { Swatch } from "../../ui/Swatch";
import { Term } from "../../ui/Term";

const PS_PER_MS = 1e9;
/** Causes where the host was late; in the others the work had been launched. */
const HOST: ReadonlySet<string> = new Set([
  "input",
  "launch",
  "sync",
  "compile",
  "checkpoint",
  "host_other",
  "allocator",
]);

function Name({ text }: { text: string | null }) {
  return text ? (
    <code title={fullText(text)}>{shorten(text, 90)}</code>
  ) : (
    <span class="muted">{t("gaps_unknown")}</span>
  );
}

/** The causes of a gap in the order in which they are drawn. */
export const gapParts = (gap: Gap): { cause: string; ms: number }[] =>
  [...CAUSES, ...Object.keys(gap.causes_ms).filter((id) => !(CAUSES as readonly string[]).includes(id))]
    .map((cause) => ({ cause, ms: gap.causes_ms[cause] ?? 0 }))
    .filter(({ ms }) => ms > 0);

/** One gap from the kernel before it to the one that ends it. */
export function GapStory({ gap, hosts }: { gap: Gap; hosts: boolean }) {
  const parts = gapParts(gap);
  const host = parts.filter(({ cause }) => HOST.has(cause));
  const device = parts.filter(({ cause }) => !HOST.has(cause));
  const sum = (list: typeof parts) => list.reduce((total, { ms }) => total + ms, 0);
  const startMs = gap.start_ps / PS_PER_MS;
  const endMs = gap.end_ps / PS_PER_MS;
  const shift = offsetMs(metaResource.remote.value.data, gap.host);
  const evidenceMs =
    gap.evidence_start_ps !== null && gap.evidence_end_ps !== null
      ? (gap.evidence_end_ps - gap.evidence_start_ps) / PS_PER_MS
      : null;
  const where = [
    gpuName({ host: gap.host, id: gap.gpu }, hosts),
    gap.step === null ? "" : t("step_n", { n: formatInt(gap.step) }),
  ];
  const list = (items: typeof parts) =>
    items.map(({ cause, ms }) => (
      <span key={cause} class="story-cause">
        <Swatch category={cause} /> <Term id={cause}>{tId("category", cause)}</Term> {formatMeasured(ms)}
      </span>
    ));
  return (
    <div class="story">
      <p class="story-head">
        <strong>{formatMeasured(gap.duration_ms)}</strong>{" "}
        <span class="muted">{where.filter(Boolean).join(" · ")}</span>
        <span class="evidence-actions">
          <button
            type="button"
            class="action"
            onClick={() => showOnTimeline({ host: gap.host, gpus: [gap.gpu], startMs, endMs })}
          >
            {t("show_in_timeline")}
          </button>
          <ProfilerLink host={gap.host} startMs={startMs - shift} endMs={endMs - shift} />
        </span>
      </p>
      <div
        class="bar story-bar"
        role="img"
        aria-label={parts.map(({ cause, ms }) => `${tId("category", cause)} ${formatMeasured(ms)}`).join(", ")}
      >
        {parts.map(({ cause, ms }) => (
          <span
            key={cause}
            class="bar-part bar-wide"
            style={{ flexGrow: (1000 * ms) / gap.duration_ms, background: cssBackground(cause, dark.value) }}
          >
            <span class="bar-value">{formatPercent(ms / gap.duration_ms)}</span>
          </span>
        ))}
      </div>
      <ol class="story-steps">
        <li>
          <h4>{t("gaps_story_before")}</h4>
          <Name text={gap.before} />
        </li>
        <li>
          <h4>{t("gaps_story_host")}</h4>
          {gap.evidence ? (
            <p>
              <Name text={gap.evidence} />
              {evidenceMs === null ? "" : ` ${t("gaps_lasting", { length: formatMeasured(evidenceMs) })}`}
              {gap.thread ? <span class="muted"> · {t("thread_n", { name: shorten(gap.thread, 40) })}</span> : null}
            </p>
          ) : host.length ? (
            <p class="muted">{t("gaps_story_host_unnamed")}</p>
          ) : null}
          {host.length ? <p>{list(host)}</p> : <p class="muted">{t("gaps_story_host_in_time")}</p>}
        </li>
        <li>
          <h4>{t("gaps_story_device")}</h4>
          {device.length ? (
            <p>{list(device)}</p>
          ) : (
            <p class="muted">{t("gaps_story_device_at_once", { length: formatMeasured(sum(host)) })}</p>
          )}
        </li>
        <li>
          <h4>{t("gaps_story_after")}</h4>
          <Name text={gap.after} />
        </li>
      </ol>
    </div>
  );
}
