import type { MomentDetails } from "../../api/types";
import { isWork } from "../../charts/palette";
import { formatDuration, formatInt, formatPercent, shorten } from "../../format";
import { t, tId } from "../../i18n";
import type { FoundInterval } from "../../state/timeline";
import { PS_PER_MS } from "../../state/timelineView";
import { Swatch } from "../../ui/Swatch";

export interface TipContent {
  gpu: string;
  time: number;
  /** What is known at once from the loaded intervals. */
  interval: FoundInterval | null;
  /** Where only bins are loaded: what fills the pixel under the pointer. */
  mixture: { category: string; share: number }[];
  /** What the server said about this moment. */
  moment: MomentDetails | null;
}

const GAP = 14;

type Row = [label: string, value: string];

/** The details as label and value, each once. */
export function tipRows({ interval, moment }: TipContent): Row[] {
  const rows: Row[] = [];
  const add = (label: string, value: string | null | undefined) => {
    if (value) rows.push([label, value]);
  };
  const start = moment?.start_ps ?? interval?.start ?? null;
  const end = moment?.end_ps ?? interval?.end ?? null;
  if (start !== null && end !== null) {
    add(t("tip_duration"), formatDuration((end - start) / PS_PER_MS, 4));
    add(t("tip_start"), formatDuration(start / PS_PER_MS, 8));
  }
  if (!moment) return rows;
  if (moment.op) add(t("tip_op"), shorten(moment.op, 80));
  if (moment.stream) add(t("tip_stream"), shorten(moment.stream, 60));
  if (moment.step !== null && moment.step !== undefined) add(t("tip_step"), formatInt(moment.step));
  if (moment.gap) {
    const causes = Object.entries(moment.gap.causes_ms)
      .filter(([, ms]) => ms > 0)
      .sort((a, b) => b[1] - a[1])
      .map(([cause, ms]) => `${tId("category", cause)} ${formatDuration(ms)}`);
    // One cause alone is in the head already.
    if (causes.length > 1) add(t("tip_causes"), causes.join(", "));
    if (moment.gap.evidence) add(t("tip_evidence"), shorten(moment.gap.evidence, 80));
    if (moment.gap.thread) add(t("tip_thread"), shorten(moment.gap.thread, 60));
    if (moment.gap.before) add(t("tip_before"), shorten(moment.gap.before, 60));
    if (moment.gap.after) add(t("tip_after"), shorten(moment.gap.after, 60));
  }
  return rows;
}

const title = ({ interval, moment }: TipContent): string => {
  const name = moment?.name ?? interval?.name;
  return name ? shorten(name, 90) : "";
};

export const tipCategory = ({ interval, moment }: TipContent): string | null =>
  (moment && moment.kind !== "none" ? moment.category : null) ?? interval?.category ?? null;

/** The same as one sentence, for screen readers. */
export function tipText(content: TipContent): string {
  const category = tipCategory(content);
  const head = [content.gpu, category ? tId("category", category) : "", title(content)].filter(Boolean).join(", ");
  return [head, ...tipRows(content).map(([label, value]) => `${label}: ${value}`)].join("; ");
}

/** Beside a point of the page (in the frame's own pixels), on the side that has room. */
export function TimelineTip({ content, x, y }: { content: TipContent; x: number; y: number }) {
  const left = x > window.innerWidth / 2;
  const above = y > window.innerHeight * 0.6;
  const style = {
    ...(left ? { right: `${document.documentElement.clientWidth - x + GAP}px` } : { left: `${x + GAP}px` }),
    ...(above ? { bottom: `${window.innerHeight - y + GAP}px` } : { top: `${y + GAP}px` }),
  };
  const category = tipCategory(content);
  const name = title(content);
  return (
    <div class="tip" aria-hidden="true" style={style}>
      <p class="tip-head">
        {category ? <Swatch category={category} /> : null}
        <strong>{category ? tId("category", category) : t("tip_at")}</strong>
        <span class="muted">{content.gpu}</span>
      </p>
      {name ? <p class="tip-name">{name}</p> : null}
      {category && !isWork(category) ? <p class="muted">{tId("category_hint", category)}</p> : null}
      {content.mixture.length && !content.interval && !content.moment ? (
        <ul>
          {content.mixture.map((part) => (
            <li key={part.category}>
              <Swatch category={part.category} /> {tId("category", part.category)} {formatPercent(part.share)}
            </li>
          ))}
        </ul>
      ) : null}
      <dl>
        {tipRows(content).map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
