import type { SessionsAnswer } from "../api/types";
import { cleanText, fullText, shorten } from "../format";
import { plural, t } from "../i18n";
import { missingSession, refreshSessions } from "../state/store";
import { RichText } from "./RichText";

const fenced = (code: string): string => `\`\`\`python\n${code}\n\`\`\``;

/** Nothing to show: what was searched, and how to record a profile. */
export function Empty({ answer }: { answer: SessionsAnswer }) {
  const steps = t("empty_step_comment");
  return (
    <section class="empty" aria-labelledby="empty-title">
      <h2 id="empty-title">{t("empty_title")}</h2>
      <p>{t("empty_where", { logdir: shorten(answer.logdir || "–", 200) })}</p>
      <ul>
        {answer.searched.map((pattern) => (
          <li key={pattern}>
            <code>{cleanText(pattern)}</code>
          </li>
        ))}
      </ul>
      <h3>{t("empty_how")}</h3>
      <p>{t("empty_tensorflow")}</p>
      <RichText
        text={fenced(`tf.profiler.experimental.start("logs/run1")\n# ${steps}\ntf.profiler.experimental.stop()`)}
      />
      <p>{t("empty_jax")}</p>
      <RichText text={fenced(`with jax.profiler.trace("logs/run1"):\n    ...  # ${steps}`)} />
      <button type="button" onClick={() => void refreshSessions()}>
        {t("refresh")}
      </button>
    </section>
  );
}

/** Files that the search could not read: one broken file hides nothing else. */
export function Problems({ answer }: { answer: SessionsAnswer }) {
  if (!answer.problems.length) return null;
  return (
    <details class="problems">
      <summary>{plural("problems", answer.problems.length)}</summary>
      <ul>
        {answer.problems.slice(0, 100).map((problem) => (
          <li key={`${problem.path}|${problem.message}`}>
            {cleanText(problem.message.slice(0, 1000))}{" "}
            <code title={fullText(problem.path)}>{shorten(problem.path, 120)}</code>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The link led to a session that is not here. */
export function MissingSession() {
  const missing = missingSession.value;
  if (!missing) return null;
  const name = [missing.run, missing.session].filter(Boolean).join("/");
  return (
    <p class="state notice" role="status">
      {t("session_missing", { name: shorten(name, 120) })}
    </p>
  );
}
