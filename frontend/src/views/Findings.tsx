import { useState } from "preact/hooks";
import type { Diagnosis, Evidence, Finding } from "../api/types";
import { cleanText, formatInt, formatMs, formatPercent, formatRange, fullText, shorten } from "../format";
import { plural, t, tId } from "../i18n";
import { showEvidence } from "../state/store";
import { openPage } from "./DocDialog";
import { gpuList, gpuName, manyHosts } from "./gpu";
import { Icon } from "./Icon";
import { ProfilerLink, ProfilerNote } from "./ProfilerLink";
import { RichText } from "./RichText";

const FEW_EVIDENCE = 5;

function EvidenceItem({ evidence, hosts }: { evidence: Evidence; hosts: boolean }) {
  const { gpu, host, start_ms, end_ms, step, thread, what } = evidence;
  const where = [
    gpu !== null ? gpuName({ host, id: gpu }, hosts) : hosts && host ? shorten(host, 24) : "",
    step !== null ? t("step_n", { n: formatInt(step) }) : "",
    thread ? t("thread_n", { name: shorten(thread, 40) }) : "",
  ].filter(Boolean);
  const timed = start_ms !== null && end_ms !== null;
  return (
    <li>
      <div class="evidence-text">
        <span title={fullText(what)}>{shorten(what, 160)}</span>
        <span class="muted">{where.join(" · ")}</span>
      </div>
      {timed ? (
        <div class="evidence-actions">
          <button
            type="button"
            class="action"
            title={t("show_in_timeline")}
            onClick={() => showEvidence({ host, gpu, startMs: start_ms, endMs: end_ms })}
          >
            {formatRange(start_ms, end_ms)}
          </button>
          <ProfilerLink host={host} startMs={start_ms} endMs={end_ms} />
        </div>
      ) : null}
    </li>
  );
}

function EvidenceList({ finding, hosts }: { finding: Finding; hosts: boolean }) {
  const [all, setAll] = useState(false);
  const { evidence } = finding;
  if (!evidence.length) return null;
  return (
    <div class="evidence">
      <h4>{t("evidence")}</h4>
      <ul>
        {(all ? evidence : evidence.slice(0, FEW_EVIDENCE)).map((item, i) => (
          // Evidence has no identity of its own and keeps its order.
          <EvidenceItem key={`${i}`} evidence={item} hosts={hosts} />
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
  const { saving_ms_per_step: saving, share } = finding;
  if (saving === null && share === null) return null;
  return (
    <div class="cost">
      {saving !== null ? (
        <p class="cost-main" title={t("cost_hint")}>
          {formatMs(saving)} <span>{t("per_step")}</span>
        </p>
      ) : null}
      {share !== null ? (
        <p class={saving === null ? "cost-main" : "muted"}>{t("of_window", { share: formatPercent(share) })}</p>
      ) : null}
    </div>
  );
}

function Body({ finding, hosts }: { finding: Finding; hosts: boolean }) {
  return (
    <>
      <div class="explanation">
        <RichText text={finding.explanation} />
      </div>
      {finding.advice.length ? (
        <>
          <h4>{t("advice")}</h4>
          <ul class="advice">
            {finding.advice.map((advice) => (
              <li key={advice}>
                <RichText text={advice} />
              </li>
            ))}
          </ul>
        </>
      ) : null}
      <EvidenceList finding={finding} hosts={hosts} />
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

function Card({ finding, result }: { finding: Finding; result: Diagnosis }) {
  const hosts = manyHosts(result.devices);
  const total = result.devices.length;
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
      {finding.severity === "info" ? (
        <details>
          <summary>{t("details")}</summary>
          <Body finding={finding} hosts={hosts} />
        </details>
      ) : (
        <Body finding={finding} hosts={hosts} />
      )}
    </article>
  );
}

/** What is wrong, worst first. */
export function Findings({ result }: { result: Diagnosis }) {
  if (!result.findings.length) {
    return (
      <p class="state good">
        <Icon name="ok" /> {t(result.verdict === "cannot_tell" ? "findings_none_unknown" : "findings_none")}
      </p>
    );
  }
  return (
    <>
      <p class="hidden">{plural("findings_count", result.findings.length)}</p>
      {result.findings.map((finding, i) => (
        <Card key={`${finding.kind}|${finding.cause}|${i}`} finding={finding} result={result} />
      ))}
      <ProfilerNote />
    </>
  );
}
