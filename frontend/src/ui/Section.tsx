import { Component, type ComponentChildren } from "preact";
import type { ApiError } from "../api/errors";
import type { Progress } from "../api/types";
import { cleanText, formatPercent, shorten } from "../format";
import { plural, t, tId } from "../i18n";
import { type Resource, useResource } from "../state/resource";
import { Icon } from "./Icon";

interface BoundaryProps {
  children: ComponentChildren;
}

/** Keeps a failing part of the page from taking the rest along. */
export class Boundary extends Component<BoundaryProps, { failure: string | null }> {
  state = { failure: null as string | null };

  static getDerivedStateFromError(error: unknown) {
    return { failure: error instanceof Error ? error.message : String(error) };
  }

  render() {
    const { failure } = this.state;
    if (failure === null) return <>{this.props.children}</>;
    return (
      <div class="state failed" role="alert">
        <Icon name="critical" />
        <div>
          <p>{t("section_failed")}</p>
          <p class="muted">{shorten(failure, 300)}</p>
          <button type="button" onClick={() => this.setState({ failure: null })}>
            {t("try_again")}
          </button>
        </div>
      </div>
    );
  }
}

interface SectionProps {
  id: string;
  title: string;
  lead?: ComponentChildren;
  children: ComponentChildren;
}

/** A part of the page with its heading and its own error boundary. */
export function Section({ id, title, lead, children }: SectionProps) {
  return (
    <section class="section" id={id} aria-labelledby={`${id}-title`}>
      <h2 id={`${id}-title`}>{title}</h2>
      {lead ? <p class="lead">{lead}</p> : null}
      <Boundary>{children}</Boundary>
    </section>
  );
}

interface LoadingProps {
  label: string;
  progress?: Progress | null;
  /** Offers to stop waiting. */
  cancel?: () => void;
}

/** How far the server is, or that we wait for it. */
export function Loading({ label, progress, cancel }: LoadingProps) {
  const stage = !progress
    ? ""
    : progress.state === "queued"
      ? progress.ahead
        ? plural("stage_queued_behind", progress.ahead)
        : t("stage_queued")
      : tId("stage", progress.stage || progress.state);
  const known = progress && progress.progress > 0;
  return (
    <div class="state loading">
      <div role="status">
        <p>
          {label}
          {stage ? ` · ${stage}` : ""}
          {known ? ` · ${formatPercent(progress.progress)}` : ""}
        </p>
      </div>
      <progress aria-label={label} max={1} value={known ? progress.progress : undefined} />
      {cancel ? (
        <button type="button" class="quiet" onClick={cancel}>
          {t("cancel")}
        </button>
      ) : null}
    </div>
  );
}

/** Nobody waits any more; the server may still finish what it began. */
export function Cancelled({ resume }: { resume: () => void }) {
  return (
    <div class="state">
      <div>
        <p role="status">{t("cancelled")}</p>
        <button type="button" onClick={resume}>
          {t("resume")}
        </button>
      </div>
    </div>
  );
}

interface RemoteViewProps<T> {
  resource: Resource<T>;
  label: string;
  children: (data: T) => ComponentChildren;
}

/** A route's answer once it is there; until then how far it is, what failed, or that nobody waits. */
export function Answer<T>({ resource, label, children }: RemoteViewProps<T>) {
  const { status, data, error, progress } = useResource(resource);
  const again = () => resource.want(true);
  return (
    <>
      {status === "failed" && error ? <Failed error={error} retry={() => resource.retry()} /> : null}
      {status === "cancelled" ? <Cancelled resume={again} /> : null}
      {status === "loading" && !data ? (
        <Loading label={label} progress={progress} cancel={() => resource.cancel()} />
      ) : null}
      {data !== null ? <div class={status === "loading" ? "stale" : undefined}>{children(data)}</div> : null}
    </>
  );
}

/** A failed request: what happened in the server's words, and what can be done. */
export function Failed({ error, retry }: { error: ApiError; retry?: () => void }) {
  const message =
    error.code === "network" ? t("error_network") : error.code === "http" ? t("error_http") : error.message;
  const details = [
    error.code === "network" || error.code === "http" ? error.message : null,
    error.message.includes(error.path ?? "") ? null : error.path,
  ];
  return (
    <div class="state failed" role="alert">
      <Icon name="critical" />
      <div>
        <p>{cleanText(message.slice(0, 2000))}</p>
        {details.map((text) =>
          text ? (
            <p class="muted path" key={text}>
              {shorten(text, 300)}
            </p>
          ) : null,
        )}
        {retry ? (
          <button type="button" onClick={retry}>
            {t("try_again")}
          </button>
        ) : null}
      </div>
    </div>
  );
}
