import { Fragment } from "preact";
import type { ProfileId, SessionsAnswer } from "../api/types";
import { cleanText, formatDate, fullText, shorten } from "../format";
import { type MessageKey, plural, t } from "../i18n";
import { refreshSessions, selectProfile } from "../state/store";
import { RichText } from "../ui/RichText";

const fenced = (code: string): string => `\`\`\`python\n${code}\n\`\`\``;

const SNIPPETS: readonly { title: MessageKey; code: (steps: string) => string }[] = [
  {
    title: "empty_pytorch",
    code: (steps) => `import torch
from torch.profiler import profile, schedule, tensorboard_trace_handler

with profile(
    schedule=schedule(wait=5, warmup=2, active=10, repeat=1),
    on_trace_ready=tensorboard_trace_handler("logs/run1"),
    record_shapes=True,
) as profiler:
    for batch in loader:
        train_step(batch)
        profiler.step()  # ${steps}`,
  },
  {
    title: "empty_tensorflow",
    code: (steps) => `tf.profiler.experimental.start("logs/run1")
# ${steps}
tf.profiler.experimental.stop()`,
  },
  {
    title: "empty_jax",
    code: (steps) => `with jax.profiler.trace("logs/run1"):
    ...  # ${steps}`,
  },
  {
    title: "empty_monitor",
    code: () => `import tb_gpu_doctor

with tb_gpu_doctor.GpuMonitor("logs/run1"):
    train()`,
  },
];

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
      {SNIPPETS.map(({ title, code }) => (
        <Fragment key={title}>
          <p>{t(title)}</p>
          <RichText text={fenced(code(steps))} />
        </Fragment>
      ))}
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

const MOST_OFFERED = 12;

/** A link led to a session that is not here: no other one is shown in its place, since it would be taken for it. */
export function MissingSession({ missing, answer }: { missing: ProfileId; answer: SessionsAnswer }) {
  const name = [missing.run, missing.session].filter(Boolean).join("/");
  // Those of the same run first: it was probably recorded again.
  const offered = [
    ...answer.sessions.filter(({ run }) => run === missing.run),
    ...answer.sessions.filter(({ run }) => run !== missing.run),
  ].slice(0, MOST_OFFERED);
  return (
    <section class="empty" aria-labelledby="missing-title">
      <h2 id="missing-title">{t("session_missing_title")}</h2>
      <p role="status" class="state notice">
        {t("session_missing", { name: shorten(name, 120), logdir: shorten(answer.logdir || "–", 200) })}
      </p>
      <h3>{t("session_missing_choose")}</h3>
      <ul class="choices">
        {offered.map((session) => (
          <li key={JSON.stringify([session.run, session.session])}>
            <button type="button" onClick={() => selectProfile(session)} title={fullText(session.label)}>
              {shorten(session.label, 100)}
            </button>{" "}
            <span class="muted">{formatDate(session.recorded_unix_s ?? session.modified_unix_s)}</span>
          </li>
        ))}
      </ul>
      {answer.sessions.length > offered.length ? <p class="muted">{t("session_missing_more")}</p> : null}
      <button type="button" onClick={() => void refreshSessions()}>
        {t("refresh")}
      </button>
    </section>
  );
}
