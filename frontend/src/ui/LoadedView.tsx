import type { ComponentChildren } from "preact";
import type { Loaded } from "../state/useLoad";
import { Cancelled, Failed, Loading } from "./Section";

interface LoadedViewProps<T> {
  state: Loaded<T>;
  label: string;
  children: (data: T) => ComponentChildren;
}

/** As `Answer`, for what `useLoad` asked for. */
export function LoadedView<T>({ state, label, children }: LoadedViewProps<T>) {
  const { status, data, error, progress, load, cancel } = state;
  return (
    <>
      {status === "failed" && error ? <Failed error={error} retry={load} /> : null}
      {status === "cancelled" ? <Cancelled resume={load} /> : null}
      {(status === "loading" || status === "idle") && !data ? (
        <Loading label={label} progress={progress} cancel={cancel} />
      ) : null}
      {data !== null ? <div class={status === "loading" ? "stale" : undefined}>{children(data)}</div> : null}
    </>
  );
}
