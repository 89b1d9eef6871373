import { useEffect, useState } from "preact/hooks";
import type { ProfileId, SessionInfo } from "../../api/types";
import { formatDate, fullText, shorten } from "../../format";
import { t } from "../../i18n";
import { SessionChoice } from "../../shell/SessionPicker";
import { infoOf, sessions } from "../../state/store";
import { Term } from "../../ui/Term";
import { batchAfter, batchBefore, choose, shownAs, turn } from "./state";

const SUGGESTED = 4;

interface BatchProps {
  label: string;
  held: { value: number | null };
}

/** A batch size, taken over on Enter or when the field is left. */
function Batch({ label, held }: BatchProps) {
  const value = held.value ? String(held.value) : "";
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const take = () => {
    const wanted = /^\d{1,9}$/.test(text.trim()) && Number(text) > 0 ? Number(text) : null;
    held.value = wanted;
    setText(wanted === null ? "" : String(wanted));
  };
  return (
    <label>
      {label}
      <input
        type="text"
        inputMode="numeric"
        size={7}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && take()}
        onBlur={take}
      />
    </label>
  );
}

function Side({ name, info }: { name: string; info: SessionInfo | null }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd title={info ? fullText(info.label) : undefined}>{info ? shorten(info.label, 80) : "–"}</dd>
    </div>
  );
}

interface ChooseProps {
  profile: ProfileId;
  beside: ProfileId | null;
  candidates: readonly SessionInfo[];
}

/** Which session to hold against the shown one, and which of the two came first. */
export function Choose({ profile, beside, candidates }: ChooseProps) {
  const all = sessions.value.data?.sessions ?? [];
  const [shown, chosen] = [infoOf(all, profile), infoOf(all, beside)];
  const [before, after] = shownAs.value === "after" ? [chosen, shown] : [shown, chosen];
  if (!candidates.length && !beside) return <p class="state">{t("compare_alone")}</p>;
  return (
    <>
      <SessionChoice label={t("compare_with")} all={candidates} current={beside} onChoose={choose} />
      {beside ? (
        <>
          <dl class="facts">
            <Side name={t("compare_before")} info={before} />
            <Side name={t("compare_after")} info={after} />
          </dl>
          <div class="filters">
            <button type="button" class="tool" onClick={turn}>
              ⇄ {t("compare_swap")}
            </button>
            <Batch label={t("compare_batch_before")} held={batchBefore} />
            <Batch label={t("compare_batch_after")} held={batchAfter} />
            <span class="muted">
              <Term text={t("compare_batch_hint")}>{t("compare_batch_optional")}</Term>
            </span>
          </div>
        </>
      ) : (
        <>
          <p class="sentence">{t("compare_choose")}</p>
          <ul class="choices">
            {candidates.slice(0, SUGGESTED).map((session) => (
              <li key={`${session.run}|${session.session}`}>
                <button type="button" class="action" onClick={() => choose(session)}>
                  {shorten(session.label, 80)}
                </button>{" "}
                <span class="muted">{formatDate(session.recorded_unix_s ?? session.modified_unix_s)}</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
