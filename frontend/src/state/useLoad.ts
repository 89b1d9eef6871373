import { useEffect } from "preact/hooks";
import type { RequestOptions } from "../api/client";
import type { ProfileId } from "../api/types";
import type { Remote, RemoteState } from "./remote";
import { revision } from "./resource";

export interface Loaded<T> extends RemoteState<T> {
  load: () => void;
  cancel: () => void;
}

/**
 * An answer that depends on more than the profile: asked for again when `key` changes. What there was stays
 * until the new answer is in.
 */
export function useLoad<T>(
  remote: Remote<T>,
  profile: ProfileId,
  key: string,
  fetcher: (options: RequestOptions) => Promise<T>,
): Loaded<T> {
  const now = revision.value;
  const load = () => void remote.load(fetcher, true);
  // Dependencies: the fetcher belongs to the key.
  useEffect(load, [profile, key, now]);
  // What another profile had must not show for a moment.
  useEffect(() => () => remote.clear(), [profile]);
  return { ...remote.value, load, cancel: () => remote.cancel() };
}
