import { type Recording, type TelemetryAnswer, telemetryResource } from "../../api/telemetry";
import type { ProfileId } from "../../api/types";
import { cleanText, formatDuration, formatInt, shorten } from "../../format";
import { plural, t } from "../../i18n";
import { Icon } from "../../ui/Icon";
import { RichText } from "../../ui/RichText";
import { Answer, Section } from "../../ui/Section";
import { Term } from "../../ui/Term";
import type { ViewProps } from "../viewProps";
import { BatchSizes } from "./Batch";
import { Curves } from "./Curves";
import { EnvironmentReport } from "./EnvironmentReport";
import { moment } from "./words";

const SNIPPET = `\`\`\`
from tb_gpu_doctor import GpuMonitor

with GpuMonitor("logs"):
    train()
\`\`\``;

const KERAS = `\`\`\`
from tb_gpu_doctor import GpuDoctorCallback

model.fit(dataset, callbacks=[GpuDoctorCallback("logs")])
\`\`\``;

const MOST = 16;

/** Each recording in one line. */
function Recordings({ recordings }: { recordings: readonly Recording[] }) {
  return (
    <ul class="plain">
      {recordings.slice(0, MOST).map((recording) => {
        const { id, host, process_id, start_unix_ms, end_unix_ms, gpus, first_step, last_step } = recording;
        return (
          <li key={id}>
            <strong>{shorten(host, 60)}</strong> · {t("process_n", { id: process_id ?? "–" })} ·{" "}
            {plural("timeline_lanes", gpus.length)}
            {start_unix_ms === null || end_unix_ms === null
              ? ""
              : ` · ${moment(start_unix_ms)} · ${formatDuration(end_unix_ms - start_unix_ms)}`}
            {first_step === null || last_step === null
              ? ""
              : ` · ${t("events_steps", { from: formatInt(first_step), to: formatInt(last_step) })}`}
            {recording.simulated ? (
              <>
                {" "}
                · <span class="badge badge-warning">{t("simulated")}</span>
              </>
            ) : null}
            {recording.joined === false ? (
              <>
                {" "}
                · <Term text={recording.not_joined_because ?? t("not_joined_hint")}>{t("not_joined")}</Term>
              </>
            ) : null}
            <span class="muted"> {shorten(recording.run, 120)}</span>
          </li>
        );
      })}
      {recordings.length > MOST ? <li>{t("and_more", { n: formatInt(recordings.length - MOST) })}</li> : null}
    </ul>
  );
}

function Notes({ answer }: { answer: TelemetryAnswer }) {
  const reasons = answer.recordings.flatMap(({ not_joined_because }) => not_joined_because ?? []);
  const notes = [
    ...new Set([
      ...answer.problems,
      ...answer.notes,
      ...answer.recordings.flatMap(({ notes: own }) => own),
      ...reasons,
    ]),
  ];
  if (!notes.length) return <p class="muted">{t("notes_none")}</p>;
  return (
    <ul>
      {notes.slice(0, 100).map((note) => (
        <li key={note}>{cleanText(note.slice(0, 2000))}</li>
      ))}
    </ul>
  );
}

function Missing() {
  return (
    <>
      <p class="state">{t("telemetry_missing")}</p>
      <p>{t("telemetry_how")}</p>
      <RichText text={SNIPPET} />
      <p>{t("telemetry_how_keras")}</p>
      <RichText text={KERAS} />
    </>
  );
}

function Telemetry({ answer, profile }: { answer: TelemetryAnswer; profile: ProfileId }) {
  if (!answer.recordings.length) return <Missing />;
  return (
    <>
      {answer.recordings.some(({ simulated }) => simulated) ? (
        <p class="state notice" role="note">
          <Icon name="warning" />
          <span>
            <strong>{t("simulated")}.</strong> {t("simulated_hint")}
          </span>
        </p>
      ) : null}
      <Recordings recordings={answer.recordings} />
      <Curves answer={answer} profile={profile} />
    </>
  );
}

/** What the GPUs did while training ran, as the companion writer recorded it. */
export function TelemetryView({ profile }: ViewProps) {
  return (
    <>
      <Section id="telemetry" title={t("view_telemetry")} lead={t("telemetry_lead")}>
        <Answer resource={telemetryResource} label={t("loading_telemetry")}>
          {(answer) => <Telemetry answer={answer} profile={profile} />}
        </Answer>
      </Section>
      <Section id="batch" title={t("batch_title")} lead={t("batch_lead")}>
        <BatchSizes />
      </Section>
      <Section id="environment" title={t("env_title")} lead={t("env_lead")}>
        <Answer resource={telemetryResource} label={t("loading_telemetry")}>
          {({ recordings }) => <EnvironmentReport recordings={recordings} />}
        </Answer>
      </Section>
      <Section id="telemetry-notes" title={t("notes_title")}>
        <Answer resource={telemetryResource} label={t("loading_telemetry")}>
          {(answer) => <Notes answer={answer} />}
        </Answer>
      </Section>
    </>
  );
}
