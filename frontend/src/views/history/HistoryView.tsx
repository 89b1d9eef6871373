import { useEffect, useMemo } from "preact/hooks";
import { fetchHistory, type HistoryAnswer, type PastSession } from "../../api/history";
import { Plot } from "../../charts/Plot";
import { drawStack, type StackColumn, type StackMark, tallestColumn } from "../../charts/stacked";
import { cleanText, formatDate, formatInt, formatMeasured, shorten } from "../../format";
import { lang, t, tId } from "../../i18n";
import { Remote } from "../../state/remote";
import { revision } from "../../state/resource";
import { sameProfile, sessions } from "../../state/store";
import { Cancelled, Failed, Loading, Section } from "../../ui/Section";
import { Legend } from "../../ui/Swatch";
import type { ViewProps } from "../viewProps";
import { Chosen } from "./Chosen";
import { drawMatrix, matrixHeight } from "./matrix";
import { SessionTable } from "./SessionTable";
import { historyOf, isCompared, lostParts, matrixOf, nameOf, partMs, past, runOf } from "./state";
import { drawTrend, type SessionMark } from "./trend";

const history = new Remote<HistoryAnswer>();

function dayLabel({ time_unix_s }: PastSession): string {
  return new Intl.DateTimeFormat(lang.value, { day: "numeric", month: "short" }).format(new Date(time_unix_s * 1000));
}

function describe(session: PastSession): string {
  return [
    `${nameOf(session)} · ${formatDate(session.time_unix_s)}`,
    session.step_ms === null
      ? t("history_no_steps")
      : t("history_step", { step: formatMeasured(session.step_ms), n: formatInt(session.steps) }),
    ...(session.problem ? [cleanText(session.problem)] : []),
  ].join("\n");
}

function Trend({ answer, chosen }: { answer: HistoryAnswer; chosen: number }) {
  const { sessions: list } = answer;
  const choose = (mark: { session: number }) => {
    const { run, session } = list[mark.session];
    past.value = { run, session };
  };
  const labels = list.map(dayLabel);
  const withParts = list.flatMap((session, i) =>
    session.parts_ms && (isCompared(session) || !list.some(isCompared)) ? [{ session, i }] : [],
  );
  const lost = lostParts(answer.parts).filter((part) =>
    withParts.some(({ session }) => (partMs(answer, session, part) ?? 0) > 0),
  );
  const columns: StackColumn[] = withParts.map(({ session }) => {
    const parts = lost.map((category) => ({ category, value: partMs(answer, session, category) ?? 0 }));
    return {
      label: dayLabel(session),
      parts,
      text: [
        nameOf(session),
        ...parts
          .filter(({ value }) => value > 0)
          .map(({ category, value }) => `${tId("category", category)}: ${formatMeasured(value)}`),
      ].join("\n"),
    };
  });
  const rows = useMemo(() => matrixOf(list), [answer]);
  const known = list.filter(isCompared);
  const first = known[0];
  const last = known[known.length - 1];
  return (
    <>
      <Plot<SessionMark>
        name="history-steps"
        title={t("history_trend")}
        summary={`${cleanText(answer.headline)} ${
          first && last
            ? t("history_trend_summary", {
                n: formatInt(known.length),
                first: formatMeasured(first.step_ms),
                last: formatMeasured(last.step_ms),
              })
            : t("history_none_comparable")
        }`}
        height={220}
        depends={[answer, chosen, lang.value]}
        onChoose={choose}
        draw={(scene) => drawTrend(scene, answer, labels, list.map(describe), chosen)}
        legend={<p class="muted">{t("history_trend_hint")}</p>}
      />
      {columns.length && lost.length ? (
        <Plot<StackMark>
          name="history-lost"
          title={t("history_lost")}
          summary={columns
            .map(({ text }) => text.replaceAll("\n", ", "))
            .slice(-3)
            .join(". ")}
          height={190}
          depends={[answer, lang.value]}
          categories={lost}
          onChoose={(mark) => choose({ session: withParts[mark.column].i })}
          draw={(scene) => drawStack(scene, columns, tallestColumn(columns))}
          legend={<Legend categories={lost} />}
        />
      ) : null}
      {rows.length ? (
        <Plot<SessionMark>
          name="history-findings"
          title={t("history_findings")}
          summary={rows
            .slice(0, 3)
            .map(({ name, severities }) =>
              t("history_found_in", { name: cleanText(name), n: formatInt(severities.filter(Boolean).length) }),
            )
            .join(" ")}
          height={matrixHeight(rows.length)}
          depends={[answer, lang.value]}
          onChoose={choose}
          draw={(scene) =>
            drawMatrix(scene, rows, labels, (row, i) => {
              const severity = row.severities[i];
              const found = severity === null ? t("compare_not_found") : tId("severity", severity);
              return `${cleanText(row.name)}: ${found}\n${nameOf(list[i])}`;
            })
          }
          legend={<p class="muted">{t("history_findings_hint")}</p>}
        />
      ) : (
        <p class="state good">{t("history_findings_none")}</p>
      )}
    </>
  );
}

function Changes({ answer }: { answer: HistoryAnswer }) {
  if (!answer.changes.length) return null;
  return (
    <ol class="changes">
      {answer.changes.map((change) => {
        const { run, session } = answer.sessions[change.session_index];
        return (
          <li key={`${change.metric}|${change.session_index}`} class={change.is_regression ? "worse" : "better"}>
            <span aria-hidden="true">{change.is_regression ? "▲" : "▼"}</span>{" "}
            <span class="hidden">{t(change.is_regression ? "history_regression" : "history_improvement")}: </span>
            {cleanText(change.sentence)}{" "}
            <button
              type="button"
              class="action"
              onClick={() => {
                past.value = { run, session };
              }}
            >
              {t("history_choose")}
              <span class="hidden"> {shorten(nameOf({ run, session }), 80)}</span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}

/** How the sessions of a run, or of the whole logdir, did over time. */
export function HistoryView({ profile }: ViewProps) {
  const all = sessions.value.data?.sessions ?? [];
  const run = runOf(historyOf.value, all, profile);
  const [language, now, count] = [lang.value, revision.value, all.length];
  const load = () => void history.load((options) => fetchHistory(run, language, options), true);
  // Dependencies: a session more or less is another history.
  useEffect(load, [run, language, now, count]);
  useEffect(() => () => history.clear(), [run]);
  const { status, data, error, progress } = history.value;
  const wanted = past.value;
  const chosen = data ? data.sessions.findIndex((session) => sameProfile(session, wanted)) : -1;
  return (
    <Section id="history" title={t("view_history")} lead={t("history_lead")}>
      <div class="filters">
        <label>
          {t("history_of")}
          <select
            value={run === null ? "all" : "run"}
            onChange={(event) => {
              historyOf.value = event.currentTarget.value === "run" ? "run" : "all";
            }}
          >
            <option value="run">{t("history_of_run", { run: shorten(profile.run || ".", 40) })}</option>
            <option value="all">{t("history_of_all")}</option>
          </select>
        </label>
      </div>
      {status === "failed" && error ? <Failed error={error} retry={load} /> : null}
      {status === "cancelled" ? <Cancelled resume={load} /> : null}
      {status === "loading" && !data ? (
        <Loading label={t("loading_history")} progress={progress} cancel={() => history.cancel()} />
      ) : null}
      {data ? (
        <div class={status === "ready" ? undefined : "stale"}>
          <p class="sentence">
            <strong>{cleanText(data.headline)}</strong>
          </p>
          <Changes answer={data} />
          <Chosen answer={data} chosen={chosen} profile={profile} />
          <Trend answer={data} chosen={chosen} />
          <h3 class="apart">{t("history_sessions")}</h3>
          <SessionTable answer={data} chosen={chosen} />
        </div>
      ) : null}
    </Section>
  );
}
