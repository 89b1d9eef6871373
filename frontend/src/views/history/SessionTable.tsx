import type { HistoryAnswer, PastSession } from "../../api/history";
import { cleanText, formatDate, formatInt, formatMeasured, formatPercent, shorten } from "../../format";
import { t, tId } from "../../i18n";
import { type Column, DataTable, titleOf } from "../../ui/DataTable";
import { historyFind, historySort, lostShares, nameOf, past } from "./state";

const NAME = 48;
const LONG = 70;

/** All sessions in numbers. */
export function SessionTable({ answer, chosen }: { answer: HistoryAnswer; chosen: number }) {
  const current = answer.sessions[chosen];
  const findings = (session: PastSession) =>
    session.findings
      .filter(({ severity }) => severity !== "info")
      .map(({ name }) => cleanText(name))
      .join(", ");
  const number = (
    key: string,
    label: string,
    value: (session: PastSession) => number | null,
    show: (value: number | null) => string,
    hint?: string,
    csvLabel = key,
  ): Column<PastSession> => ({ key, label, hint, number: true, csvLabel, value, cell: (row) => show(value(row)) });
  const columns: Column<PastSession>[] = [
    {
      key: "session",
      label: t("history_session"),
      value: nameOf,
      cell: (row) => shorten(nameOf(row), NAME),
      title: (row) => titleOf(nameOf(row)),
    },
    {
      key: "time",
      label: t("history_time"),
      number: true,
      csvLabel: "time_unix_s",
      value: ({ time_unix_s }) => time_unix_s,
      cell: ({ time_unix_s }) => formatDate(time_unix_s),
    },
    {
      key: "verdict",
      label: t("beside_verdict"),
      value: ({ verdict }) => (verdict ? tId("verdict_word", verdict) : null),
      csv: ({ verdict }) => verdict,
    },
    number("step", t("history_mean_step"), (row) => row.step_ms, formatMeasured, t("term_history_step"), "step_ms"),
    number("steps", t("history_steps"), (row) => row.steps, formatInt),
    number("idle", t("category_idle"), (row) => lostShares(answer, row).idle, formatPercent, t("category_hint_idle")),
    number(
      "waiting",
      t("category_communication_wait"),
      (row) => lostShares(answer, row).waiting,
      formatPercent,
      t("category_hint_communication_wait"),
    ),
    number("occupancy", t("beside_occupancy"), (row) => row.occupancy, formatPercent),
    {
      key: "findings",
      label: t("history_findings"),
      value: findings,
      cell: (row) => shorten(findings(row), LONG),
      title: (row) => titleOf(findings(row)),
    },
    {
      key: "problem",
      label: t("history_left_out"),
      hint: t("term_history_left_out"),
      value: ({ problem }) => (problem ? cleanText(problem) : null),
      cell: ({ problem }) => (problem ? shorten(problem, LONG) : ""),
      title: ({ problem }) => titleOf(problem),
    },
  ];
  return (
    <DataTable
      name="history"
      label={t("history_sessions")}
      rows={answer.sessions}
      columns={columns}
      order={historySort}
      search={historyFind}
      rowKey={nameOf}
      chosen={(row) => row === current}
      onChoose={({ run, session }) => {
        past.value = { run, session };
      }}
    />
  );
}
