import type { Recording } from "../../api/telemetry";
import { cleanText, shorten } from "../../format";
import { t, tId } from "../../i18n";
import { Icon } from "../../ui/Icon";
import { RichText } from "../../ui/RichText";
import { environmentFacts, problemsOf, reportText } from "./environment";

const known = (severity: string) => (severity === "critical" || severity === "warning" ? severity : "info");

function Report({ recording, named }: { recording: Recording; named: boolean }) {
  const { environment } = recording;
  const problems = problemsOf(environment);
  return (
    <>
      {named ? (
        <h3 class="apart">
          {shorten(recording.host, 60)} · {t("process_n", { id: recording.process_id ?? "–" })}
        </h3>
      ) : null}
      {problems.length ? (
        <ul class="plain">
          {problems.map((problem, i) => (
            <li key={`${i}`} class={`card card-${known(problem.severity)}`}>
              <span class={`badge badge-${known(problem.severity)}`}>
                <Icon name={known(problem.severity)} />
                {tId("severity", problem.severity)}
              </span>
              <p>{cleanText(problem.text.slice(0, 2000))}</p>
              {problem.fix.length ? (
                <RichText text={`\`\`\`\n${problem.fix.join("\n").slice(0, 4000)}\n\`\`\``} />
              ) : null}
            </li>
          ))}
        </ul>
      ) : (
        <p class="state good">
          <Icon name="ok" />
          {t("env_no_problem")}
        </p>
      )}
      <dl class="facts">
        {environmentFacts(environment).map(({ label, value }) => (
          <div key={label}>
            <dt>{t(label)}</dt>
            <dd>{shorten(value, 160)}</dd>
          </div>
        ))}
      </dl>
      <details>
        <summary>{t("env_all")}</summary>
        <RichText text={`\`\`\`\n${reportText(environment)}\n\`\`\``} />
      </details>
    </>
  );
}

/** What training ran under, and what was wrong with it. */
export function EnvironmentReport({ recordings }: { recordings: readonly Recording[] }) {
  const reported = recordings.filter(({ environment }) => Object.keys(environment).length);
  if (!reported.length)
    return (
      <p class="muted">
        <RichText text={t("env_missing")} />
      </p>
    );
  return (
    <>
      {reported.map((recording) => (
        <Report key={recording.id} recording={recording} named={reported.length > 1} />
      ))}
    </>
  );
}
