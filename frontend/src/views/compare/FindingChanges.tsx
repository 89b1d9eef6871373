import type { ComparedFinding, Comparison, FindingChange } from "../../api/compare";
import { cleanText, formatMeasured, formatPercent, shorten } from "../../format";
import { hasMessage, t, tId } from "../../i18n";
import { openPage } from "../../ui/DocDialog";
import { Icon, type IconName } from "../../ui/Icon";

const LOOKS: Record<FindingChange, { sign: string; badge: string; card: string; icon: IconName }> = {
  solved: { sign: "✓", badge: "badge-ok", card: "card-ok", icon: "ok" },
  better: { sign: "▼", badge: "badge-ok", card: "card-ok", icon: "ok" },
  new: { sign: "＋", badge: "badge-critical", card: "card-critical", icon: "critical" },
  worse: { sign: "▲", badge: "badge-critical", card: "card-critical", icon: "warning" },
  unchanged: { sign: "=", badge: "badge-info", card: "", icon: "info" },
  cannot_tell: { sign: "?", badge: "badge-info", card: "", icon: "cannot_tell" },
};

/** What stays small: it neither helped nor harmed. */
const QUIET: readonly FindingChange[] = ["unchanged", "cannot_tell"];

function side(finding: ComparedFinding, which: "before" | "after", unit: Comparison["unit"]): string {
  const severity = finding[`severity_${which}`];
  if (severity === null) return t("compare_not_found");
  const cost = finding[`cost_${which}_ms`];
  const share = finding[`share_${which}`];
  const cause = finding[`cause_${which}`];
  const words = [tId("severity", severity)];
  if (cost !== null && unit !== "window") words.push(t(`compare_cost_${unit}`, { cost: formatMeasured(cost) }));
  else if (share !== null) words.push(t("compare_share", { share: formatPercent(share) }));
  if (cause) words.push(causeWords(cause));
  return words.join(", ");
}

function causeWords(cause: string): string {
  for (const prefix of ["category", "limiter", "cause"])
    if (hasMessage(`${prefix}_${cause}`)) return tId(prefix, cause);
  return shorten(cause.replaceAll("_", " "), 40);
}

function FindingCard({ finding, unit }: { finding: ComparedFinding; unit: Comparison["unit"] }) {
  const look = LOOKS[finding.change] ?? LOOKS.cannot_tell;
  return (
    <li class={`card ${look.card}`} data-change={finding.change}>
      <div class="card-head">
        <div>
          <span class={`badge ${look.badge}`}>
            <Icon name={look.icon} size={13} />
            {tId("finding_change", finding.change)}
          </span>
          <h4>{cleanText(finding.name)}</h4>
          <p class="muted">
            {side(finding, "before", unit)} → {side(finding, "after", unit)}
          </p>
        </div>
        <button
          type="button"
          class="action"
          onClick={() => {
            openPage.value = finding.docs;
          }}
        >
          {t("learn_more")}
          <span class="hidden">: {cleanText(finding.name)}</span>
        </button>
      </div>
    </li>
  );
}

/** Findings that were solved, came, or changed their weight. */
export function FindingChanges({ answer }: { answer: Comparison }) {
  const { findings } = answer;
  const loud = findings.filter(({ change }) => !QUIET.includes(change));
  const quiet = findings.filter(({ change }) => QUIET.includes(change));
  return (
    <>
      <h3 class="apart">{t("compare_findings")}</h3>
      {findings.length ? null : <p class="muted">{t("compare_findings_none")}</p>}
      {findings.length && !loud.length ? <p>{t("compare_findings_same")}</p> : null}
      <ul class="cards">
        {loud.map((finding) => (
          <FindingCard key={finding.kind} finding={finding} unit={answer.unit} />
        ))}
      </ul>
      {quiet.length ? (
        <details>
          <summary>{t("compare_findings_quiet", { n: String(quiet.length) })}</summary>
          <ul class="cards">
            {quiet.map((finding) => (
              <FindingCard key={finding.kind} finding={finding} unit={answer.unit} />
            ))}
          </ul>
        </details>
      ) : null}
    </>
  );
}
