import { useMemo, useState } from "preact/hooks";
import type { Diagnosis, Finding } from "../../api/types";
import { cleanText, formatInt, formatMeasured, formatPercent, formatRange, fullText, shorten } from "../../format";
import { plural, t, tId } from "../../i18n";
import { listParam } from "../../state/params";
import { showEvidence } from "../../state/store";
import { openPage } from "../../ui/DocDialog";
import { gpuList, manyHosts } from "../../ui/gpu";
import { Icon } from "../../ui/Icon";
import { ProfilerLink, ProfilerNote } from "../../ui/ProfilerLink";
import { RichText } from "../../ui/RichText";
import { Section } from "../../ui/Section";
import { Term } from "../../ui/Term";
import { type EvidenceGroup, groupEvidence } from "./evidence";

const FEW_EVIDENCE = 5;

function EvidenceItem({ evidence, hosts, total }: { evidence: EvidenceGroup; hosts: boolean; total: number }) {
  const { gpus, host, startMs, endMs, step, thread, what } = evidence;
  const refs = gpus.map((id) => ({ host, id }));
  const where = [
    refs.length ? gpuList(refs, total, hosts) : hosts && host ? shorten(host, 24) : "",
    step !== null ? t("step_n", { n: formatInt(step) }) : "",
    thread ? t("thread_n", { name: shorten(thread, 40) }) : "",
  ].filter(Boolean);
  return (
    <li>
      <div class="evidence-text">
        <span title={fullText(what)}>{shorten(what, 160)}</span>
        <span class="muted">{where.join(" · ")}</span>
      </div>
      {startMs !== null && endMs !== null ? (
        <div class="evidence-actions">
          <button
            type="button"
            class="action"
            title={t("show_in_timeline")}
            onClick={() => void showEvidence({ host, gpus, startMs, endMs })}
          >
            {formatRange(startMs, endMs)}
          </button>
          <ProfilerLink host={host} startMs={startMs} endMs={endMs} />
        </div>
      ) : null}
    </li>
  );
}

function EvidenceList({ finding, hosts, total }: { finding: Finding; hosts: boolean; total: number }) {
  const [all, setAll] = useState(false);
  const evidence = useMemo(() => groupEvidence(finding.evidence), [finding]);
  if (!evidence.length) return null;
  return (
    <div class="evidence">
      <h4>{t("evidence")}</h4>
      <ul>
        {(all ? evidence : evidence.slice(0, FEW_EVIDENCE)).map((item, i) => (
          // Evidence has no identity of its own and keeps its order.
          <EvidenceItem key={`${i}`} evidence={item} hosts={hosts} total={total} />
        ))}
      </ul>
      {evidence.length > FEW_EVIDENCE ? (
        <button type="button" class="quiet" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t("show_fewer") : t("show_all", { n: formatInt(evidence.length) })}
        </button>
      ) : null}
    </div>
  );
}

function Cost({ finding }: { finding: Finding }) {
  const { cost, saving_ms_per_step: saving, share } = finding;
  if ((saving === null && share === null) || cost === "none") return null;
  // Time spent in something is not time lost to it.
  const spent = cost === "spent";
  return (
    <div class="cost">
      {saving !== null ? (
        <p>
          {t("saving_before")}{" "}
          <Term text={t("cost_hint")}>
            <span class="cost-main">{formatMeasured(saving)}</span>
          </Term>{" "}
          {t("saving_after")}
        </p>
      ) : null}
      {share !== null ? (
        <p class={saving === null ? undefined : "muted"}>
          {t(spent ? "takes_before" : "costs_before")}{" "}
          <Term text={t(spent ? "takes_hint" : "share_hint")}>
            <span class={saving === null ? "cost-main" : undefined}>{formatPercent(share)}</span>
          </Term>{" "}
          {t("of_window")}
        </p>
      ) : null}
    </div>
  );
}

/** The first sentence says what is wrong; what follows are the facts behind it, a line each. */
function Explanation({ text }: { text: string }) {
  const [first, ...facts] = text.split("\n").filter(Boolean);
  return (
    <div class="explanation">
      <p>
        <RichText text={first ?? ""} />
      </p>
      {facts.length ? (
        <ul>
          {facts.map((fact) => (
            <li key={fact}>
              <RichText text={fact} />
            </li>
          ))}
        </ul>
      ) : null}
    </div>
  );
}

function Body({ finding, hosts, total }: { finding: Finding; hosts: boolean; total: number }) {
  const { advice, check } = finding;
  return (
    <>
      <Explanation text={finding.explanation} />
      <EvidenceList finding={finding} hosts={hosts} total={total} />
      {advice.length ? (
        <>
          <h4>{t("advice")}</h4>
          <ul class="advice">
            {advice.map((item) => (
              <li key={item}>
                <RichText text={item} />
              </li>
            ))}
          </ul>
        </>
      ) : null}
      {check ? (
        <>
          <h4>{t("verify")}</h4>
          <p class="explanation">
            <RichText text={check} />
          </p>
        </>
      ) : null}
      {finding.docs ? (
        <button
          type="button"
          class="quiet"
          onClick={() => {
            openPage.value = finding.docs;
          }}
        >
          {t("learn_more")}
          <span class="hidden"> {cleanText(finding.title)}</span>
        </button>
      ) : null}
    </>
  );
}

/** Findings that are unfolded or folded against how they are at first, by kind and place. */
const toggledFindings = listParam("findings");

interface CardProps {
  finding: Finding;
  result: Diagnosis;
  /** Its name in links. */
  id: string;
  /** Whether it is unfolded at first. */
  first: boolean;
}

function Card({ finding, result, id, first }: CardProps) {
  const hosts = manyHosts(result.devices);
  const total = result.devices.length;
  const open = toggledFindings.value.includes(id) !== first;
  const body = `finding-${id}`;
  return (
    <article class={`card card-${finding.severity}`}>
      <div class="card-head">
        <div>
          <p class={`badge badge-${finding.severity}`}>
            <Icon name={finding.severity} />
            {tId("severity", finding.severity)}
          </p>
          <h3>{cleanText(finding.title)}</h3>
          <p class="muted">
            {finding.gpus.length ? gpuList(finding.gpus, total, hosts) : ""}
            {finding.victims.length ? ` · ${t("victims", { gpus: gpuList(finding.victims, total, hosts) })}` : ""}
          </p>
        </div>
        <Cost finding={finding} />
      </div>
      <button
        type="button"
        class="quiet unfold"
        aria-expanded={open}
        aria-controls={open ? body : undefined}
        onClick={() => {
          const { value } = toggledFindings;
          toggledFindings.value = value.includes(id) ? value.filter((each) => each !== id) : [...value, id];
        }}
      >
        {open ? "▾" : "▸"} {t(open ? "details_hide" : "details_show")}
        <span class="hidden"> {cleanText(finding.title)}</span>
      </button>
      <div id={body} hidden={!open} class="card-body">
        {open ? <Body finding={finding} hosts={hosts} total={total} /> : null}
      </div>
    </article>
  );
}

/** What is wrong, in order of cost; and apart from it what the profile could not tell, and why. */
export function Findings({ result }: { result: Diagnosis }) {
  const cards = result.findings.map((finding, i) => ({ finding, id: `${finding.kind}.${i}` }));
  const problems = cards.filter(({ finding }) => finding.about !== "profile");
  const limits = cards.filter(({ finding }) => finding.about === "profile");
  // The first reason not to judge is in the verdict's sentence already.
  const warnings = result.profile.warnings;
  return (
    <>
      <Section id="findings" title={t("findings_title")} lead={t("findings_lead")}>
        {problems.length ? (
          <>
            <p class="hidden">{plural("findings_count", problems.length)}</p>
            {problems.map(({ finding, id }, i) => (
              <Card key={id} id={id} finding={finding} result={result} first={i === 0 && finding.severity !== "info"} />
            ))}
            <ProfilerNote />
          </>
        ) : (
          <p class={result.verdict === "ok" ? "state good" : "state"}>
            <Icon name={result.verdict === "ok" ? "ok" : "cannot_tell"} />{" "}
            {t(result.verdict === "ok" ? "findings_none" : "findings_none_unknown")}
          </p>
        )}
      </Section>
      {limits.length || warnings.length ? (
        <Section id="limits" title={t("limits_title")} lead={t("limits_lead")}>
          {warnings.length ? (
            <ul class="advice">
              {warnings.map((warning) => (
                <li key={warning}>{cleanText(warning.slice(0, 2000))}</li>
              ))}
            </ul>
          ) : null}
          {limits.map(({ finding, id }) => (
            <Card
              key={id}
              id={id}
              finding={finding}
              result={result}
              first={problems.length === 0 && finding.severity !== "info"}
            />
          ))}
        </Section>
      ) : null}
    </>
  );
}
