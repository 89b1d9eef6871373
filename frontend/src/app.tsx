import { useEffect, useRef } from "preact/hooks";
import { stopAnalysis } from "./api/routes";
import { cleanText } from "./format";
import { lang, t } from "./i18n";
import { Empty, MissingSession, Problems } from "./shell/Empty";
import { Header } from "./shell/Header";
import { Nav, PANEL_ID, tabId } from "./shell/Nav";
import { dark } from "./state/host";
import { shownProfile } from "./state/resource";
import {
  diagnosis,
  loadDiagnosis,
  missingSession,
  refreshSessions,
  retryDiagnosis,
  selectedInfo,
  sessions,
  view,
} from "./state/store";
import { DocDialog } from "./ui/DocDialog";
import { Boundary, Cancelled, Failed, Loading } from "./ui/Section";
import { offeredViews } from "./views/registry";

/** The navigation and the view that it leads to; only that one exists. */
function Views() {
  const { status, data, error, progress } = diagnosis.value;
  const profile = shownProfile.value;
  const problem = selectedInfo.value?.problem;
  const wanted = view.value;
  const views = offeredViews(data);
  const active = views.find(({ id }) => id === wanted) ?? views[0];
  const panel = useRef<HTMLDivElement>(null);
  if (!data) {
    return (
      <>
        {problem ? <p class="state notice">{cleanText(problem.slice(0, 2000))}</p> : null}
        {status === "failed" && error && error.message !== problem ? (
          <Failed error={error} retry={retryDiagnosis} />
        ) : null}
        {status === "cancelled" ? <Cancelled resume={loadDiagnosis} /> : null}
        {status === "loading" ? (
          <Loading
            label={t("loading_diagnosis")}
            progress={progress}
            cancel={() => {
              if (profile) stopAnalysis(profile);
              diagnosis.cancel();
            }}
          />
        ) : null}
      </>
    );
  }
  if (!profile) return null;
  const View = active.component;
  return (
    <>
      <Nav views={views} active={active.id} />
      {status === "failed" && error ? <Failed error={error} retry={retryDiagnosis} /> : null}
      <div
        class={status === "loading" ? "view stale" : "view"}
        id={PANEL_ID}
        role="tabpanel"
        aria-labelledby={tabId(active.id)}
        data-view={active.id}
        tabIndex={-1}
        ref={panel}
      >
        {/* Another profile or view starts with fresh parts: nothing failed, unfolded or scrolled is left. */}
        <Boundary key={`${active.id}|${JSON.stringify(profile)}`}>
          <View result={data} profile={profile} />
        </Boundary>
      </div>
    </>
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
      {missingSession.value ? <MissingSession missing={missingSession.value} answer={data} /> : <Views />}
      <Problems answer={data} />
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
