import type { Comparison, Outcome as OutcomeId } from "../../api/compare";
import { cleanText } from "../../format";
import { t, tId } from "../../i18n";
import { Icon, type IconName } from "../../ui/Icon";

const LOOKS: Record<OutcomeId, { look: string; icon: IconName }> = {
  faster: { look: "ok", icon: "ok" },
  slower: { look: "critical", icon: "critical" },
  same: { look: "cannot_tell", icon: "info" },
  inconclusive: { look: "warning", icon: "cannot_tell" },
  not_comparable: { look: "critical", icon: "warning" },
};

/** The answer in a word, why, and what to know before believing it. */
export function Outcome({ answer }: { answer: Comparison }) {
  const { look, icon } = LOOKS[answer.outcome] ?? LOOKS.inconclusive;
  return (
    <>
      <div class={`verdict verdict-${look}`} data-outcome={answer.outcome}>
        <Icon name={icon} size={28} />
        <div>
          <h3 class="verdict-word">{tId("outcome", answer.outcome)}</h3>
          <p>{cleanText(answer.headline)}</p>
          {answer.reasons.map((reason) => (
            <p key={reason}>{cleanText(reason)}</p>
          ))}
        </div>
      </div>
      {answer.obstacles.length ? (
        <div class={answer.outcome === "not_comparable" ? "state failed" : "state notice"} role="note">
          <Icon name="warning" />
          <div>
            <h3>{t("compare_obstacles")}</h3>
            <ul>
              {answer.obstacles.map((obstacle) => (
                <li key={obstacle}>{cleanText(obstacle)}</li>
              ))}
            </ul>
          </div>
        </div>
      ) : null}
    </>
  );
}
