import { Fragment } from "preact";
import { useEffect } from "preact/hooks";
import { cleanText } from "./format";
import { lang, t } from "./i18n";
import { dark } from "./state/host";
import { diagnosis, eventLimit, kernels, meta, refreshSessions, selected, selectedInfo, sessions } from "./state/store";
import { Accounting } from "./views/Accounting";
import { DocDialog } from "./views/DocDialog";
import { Empty, MissingSession, Problems } from "./views/Empty";
import { Findings } from "./views/Findings";
import { Header } from "./views/Header";
import { Kernels } from "./views/Kernels";
import { Boundary, Failed, Loading, Section } from "./views/Section";
import { Timeline } from "./views/timeline/Timeline";
import { Verdict } from "./views/Verdict";

/** Without a GPU the findings say all there is to say. */
const noGpu = (): boolean => diagnosis.value.data?.devices.length === 0;

/** The diagnosis and what it is made of. */
function Report() {
  const { status, data, error, progress } = diagnosis.value;
  const problem = selectedInfo.value?.problem;
  return (
    <>
      {problem ? <p class="state notice">{cleanText(problem.slice(0, 2000))}</p> : null}
      {status === "failed" && error && error.message !== problem ? (
        <Failed error={error} retry={() => void refreshSessions()} />
      ) : null}
      {status === "loading" && !data ? <Loading label={t("loading_diagnosis")} progress={progress} /> : null}
      {data ? (
        <div class={status === "loading" ? "stale" : undefined}>
          <Boundary>
            <Verdict result={data} />
          </Boundary>
          {data.devices.length ? (
            <Section id="accounting" title={t("accounting_title")} lead={t("accounting_lead")}>
              <Accounting result={data} />
            </Section>
          ) : null}
          <Section id="findings" title={t("findings_title")}>
            <Findings result={data} />
          </Section>
        </div>
      ) : null}
    </>
  );
}

function TimelineSection() {
  const { status, data, error, progress } = meta.value;
  const profile = selected.value;
  if (noGpu() && !data?.lanes.length) return null;
  // The same failure as the diagnosis's is said once, up there.
  if (status === "idle" || (status === "failed" && !data && error?.message === diagnosis.value.error?.message))
    return null;
  return (
    <Section id="timeline" title={t("timeline_title")}>
      {status === "loading" && !data ? <Loading label={t("loading_timeline")} progress={progress} /> : null}
      {status === "failed" && error ? <Failed error={error} /> : null}
      {data && profile ? <Timeline profile={profile} meta={data} limit={eventLimit.value} /> : null}
    </Section>
  );
}

function KernelSection() {
  const { status, data, error, progress } = kernels.value;
  if (noGpu() && !data?.rows.length) return null;
  if (status === "idle" || (status === "failed" && !data && error?.message === diagnosis.value.error?.message))
    return null;
  return (
    <Section id="kernels" title={t("kernels_title")} lead={t("kernels_lead")}>
      {status === "loading" && !data ? <Loading label={t("loading_kernels")} progress={progress} /> : null}
      {status === "failed" && error ? <Failed error={error} /> : null}
      {data ? <Kernels answer={data} /> : null}
    </Section>
  );
}

function Body() {
  const { status, data, error } = sessions.value;
  if (status === "failed" && error && !data) return <Failed error={error} retry={() => void refreshSessions()} />;
  if (!data) return <Loading label={t("loading_sessions")} />;
  if (!data.sessions.length) {
    return (
      <>
        {data.scanning ? <Loading label={t("scanning")} /> : <Empty answer={data} />}
        <Problems answer={data} />
      </>
    );
  }
  return (
    <>
      {status === "failed" && error ? <Failed error={error} retry={() => void refreshSessions()} /> : null}
      <MissingSession />
      <Problems answer={data} />
      {/* A new profile starts with fresh parts: nothing failed, unfolded or scrolled is left of the one before. */}
      <Fragment key={JSON.stringify(selected.value)}>
        <Report />
        <TimelineSection />
        <KernelSection />
      </Fragment>
    </>
  );
}

export function App() {
  useEffect(() => {
    document.documentElement.lang = lang.value;
    document.title = t("page_title");
  }, [lang.value]);
  useEffect(() => {
    document.documentElement.dataset.theme = dark.value ? "dark" : "light";
  }, [dark.value]);
  return (
    <div class="page">
      <Boundary>
        <Header />
      </Boundary>
      <main>
        <Boundary>
          <Body />
        </Boundary>
      </main>
      <Boundary>
        <DocDialog />
      </Boundary>
    </div>
  );
}
