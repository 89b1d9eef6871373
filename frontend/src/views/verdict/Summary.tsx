import type { Diagnosis } from "../../api/types";
import { cleanText, formatInt, formatMeasured, formatNumber, formatPercent } from "../../format";
import { plural, t } from "../../i18n";
import { Icon } from "../../ui/Icon";
import { Term } from "../../ui/Term";

/** Mean share of the window in which the GPUs computed; null when unknown. */
export function meanCompute(result: Diagnosis): number | null {
  const shares = result.devices.flatMap(({ compute_ms, wall_ms }) =>
    compute_ms !== null && wall_ms ? [compute_ms / wall_ms] : [],
  );
  return shares.length ? shares.reduce((sum, share) => sum + share, 0) / shares.length : null;
}

/** Why nothing can be said (the first note does), and where to read what to do about it. */
function cannotTell({ profile, findings }: Diagnosis): string {
  const parts = [profile.warnings[0] ?? t("verdict_cannot_tell_text")];
  if (profile.incomplete && profile.incomplete !== parts[0]) parts.push(profile.incomplete);
  if (findings.some((finding) => finding.about === "profile")) parts.push(t("verdict_cannot_tell_findings"));
  return parts.join(" ");
}

/** The one sentence that says how the run is. */
export function verdictSentence(result: Diagnosis): string {
  const busy = meanCompute(result);
  const computing = busy === null ? "" : ` ${t("verdict_computing", { share: formatPercent(busy) })}`;
  if (result.verdict === "cannot_tell") return cannotTell(result);
  const count = (severity: string) => result.findings.filter((finding) => finding.severity === severity).length;
  const critical = count("critical");
  const warnings = count("warning");
  if (result.verdict === "ok" || critical + warnings === 0) return t("verdict_ok_text") + computing;
  const worst = result.findings.find((finding) => finding.severity === result.verdict) ?? result.findings[0];
  const cost =
    worst.saving_ms_per_step !== null
      ? t("verdict_cost_step", { cost: formatMeasured(worst.saving_ms_per_step) })
      : worst.share !== null && worst.cost !== "none" && !worst.title.includes("%")
        ? t("verdict_cost_share", { share: formatPercent(worst.share) })
        : "";
  const counts = [
    critical ? plural("count_critical", critical) : "",
    warnings ? plural("count_warning", warnings) : "",
  ].filter(Boolean);
  const key = critical + warnings === 1 ? "verdict_single_text" : "verdict_problem_text";
  const incomplete = result.profile.incomplete ? ` ${result.profile.incomplete}` : "";
  return `${t(key, { counts: counts.join(t("and")), worst: worst.title })}${cost}.${incomplete}${computing}`;
}

/** The most that one finding could make a step shorter, with the step's length; gains of several do not add up. */
export function bestSaving(result: Diagnosis): { ms: number; stepMs: number } | null {
  const savings = result.findings.flatMap(({ saving_ms_per_step: ms }) => (ms === null ? [] : [ms]));
  const stepMs = result.steps.median_ms;
  return savings.length && stepMs ? { ms: Math.max(...savings), stepMs } : null;
}

/** The numbers that say how the run is, each with its definition. */
function Glance({ result }: { result: Diagnosis }) {
  const busy = meanCompute(result);
  const saving = bestSaving(result);
  const count = (severity: string) => result.findings.filter((finding) => finding.severity === severity).length;
  const { median_ms, count: steps } = result.steps;
  const facts: [string, string, string][] = [];
  if (busy !== null) facts.push([t("glance_compute"), formatPercent(busy), t("term_glance_compute")]);
  if (saving)
    facts.push([
      t("glance_saving"),
      `${formatMeasured(saving.ms)} · ${formatPercent(saving.ms / saving.stepMs)}`,
      t("term_glance_saving"),
    ]);
  if (steps && median_ms !== null) facts.push([t("glance_step"), formatMeasured(median_ms), t("term_step")]);
  if (result.steps.samples_per_s)
    facts.push([
      t("glance_rate"),
      t("rate_per_s", { n: formatNumber(result.steps.samples_per_s) }),
      t("term_glance_rate"),
    ]);
  facts.push([
    t("glance_findings"),
    [count("critical"), count("warning"), count("info")].map((n) => formatInt(n)).join(" / "),
    t("term_glance_findings"),
  ]);
  return (
    <dl class="glance">
      {facts.map(([name, value, hint]) => (
        <div key={name}>
          <dt>
            <Term text={hint}>{name}</Term>
          </dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Verdict({ result }: { result: Diagnosis }) {
  return (
    <section class={`verdict verdict-${result.verdict}`} aria-labelledby="verdict-title">
      <Icon name={result.verdict} size={32} />
      <div>
        <h2 id="verdict-title">{t(`verdict_${result.verdict}`)}</h2>
        <p>{cleanText(verdictSentence(result))}</p>
        <Glance result={result} />
      </div>
    </section>
  );
}
