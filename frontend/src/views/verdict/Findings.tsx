import { useMemo, useState } from "preact/hooks";
import type { Diagnosis, Finding } from "../../api/types";
import { cleanText, formatInt, formatMeasured, formatPercent, formatRange, fullText, shorten } from "../../format";
import { plural, t, tId } from "../../i18n";
import { showEvidence } from "../../state/store";
import { openPage } from "../../ui/DocDialog";
import { gpuList, manyHosts } from "../../ui/gpu";
import { Icon } from "../../ui/Icon";
import { ProfilerLink, ProfilerNote } from "../../ui/ProfilerLink";
import { RichText } from "../../ui/RichText";
import { type EvidenceGroup, groupEvidence } from "./evidence";
import { COSTLESS } from "./kinds";

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

// Time spent in something is not time lost to it.
const TIME_IN = new Set(["low_occupancy"]);

function Cost({ finding }: { finding: Finding }) {
  const { kind, saving_ms_per_step: saving, share } = finding;
  if ((saving === null && share === null) || COSTLESS.has(kind)) return null;
  return (
    <div class="cost">
      {saving !== null ? (
        <p title={t("cost_hint")}>
          {t("saving_before")} <span class="cost-main">{formatMeasured(saving)}</span> {t("saving_after")}
        </p>
      ) : null}
      {share !== null ? (
        <p class={saving === null ? undefined : "muted"}>
          {t(TIME_IN.has(kind) ? "takes_before" : "costs_before")}{" "}
          <span class={saving === null ? "cost-main" : undefined}>{formatPercent(share)}</span> {t("of_window")}
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
  return (
    <>
      <Explanation text={finding.explanation} />
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
      <EvidenceList finding={finding} hosts={hosts} total={total} />
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
          <Body finding={finding} hosts={hosts} total={total} />
        </details>
      ) : (
        <Body finding={finding} hosts={hosts} total={total} />
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
