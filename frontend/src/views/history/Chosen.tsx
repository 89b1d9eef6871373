import type { HistoryAnswer } from "../../api/history";
import type { ProfileId } from "../../api/types";
import { cleanText, formatDate, formatMeasured, shorten } from "../../format";
import { t, tId } from "../../i18n";
import { sameProfile, selectProfile, view } from "../../state/store";
import { compareWith } from "../compare/state";
import { nameOf, past } from "./state";

interface ChosenProps {
  answer: HistoryAnswer;
  chosen: number;
  profile: ProfileId;
}

/** The session that was pointed at: open it, or hold the shown one against it. */
export function Chosen({ answer, chosen, profile }: ChosenProps) {
  const session = answer.sessions[chosen];
  if (!session) return <p class="muted">{t("history_hint")}</p>;
  const shown = answer.sessions.findIndex((each) => sameProfile(each, profile));
  const isShown = shown === chosen;
  const open = () => {
    view.value = "verdict";
    selectProfile(session);
  };
  return (
    <section class="story" aria-label={t("history_chosen")}>
      <h3>{shorten(nameOf(session), 100)}</h3>
      <p>
        {[
          formatDate(session.time_unix_s),
          session.verdict ? tId("verdict_word", session.verdict) : null,
          session.step_ms === null ? null : t("history_mean", { value: formatMeasured(session.step_ms) }),
        ]
          .filter(Boolean)
          .join(" · ")}
      </p>
      {session.problem ? <p class="muted">{cleanText(session.problem)}</p> : null}
      {session.findings.length ? (
        <p class="muted">
          {session.findings.map(({ name, severity }) => `${cleanText(name)} (${tId("severity", severity)})`).join(", ")}
        </p>
      ) : null}
      <p class="evidence-actions">
        {isShown ? (
          <span class="muted">{t("history_is_shown")}</span>
        ) : (
          <>
            <button type="button" onClick={open}>
              {t("history_open")}
            </button>
            {session.verdict ? (
              <button type="button" onClick={() => compareWith(session, shown < 0 || chosen < shown)}>
                {t("history_compare")}
              </button>
            ) : null}
          </>
        )}
        <button
          type="button"
          class="quiet"
          onClick={() => {
            past.value = null;
          }}
        >
          {t("close")}
        </button>
      </p>
    </section>
  );
}
