import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { RequestOptions } from "../api/client";
import { retryAnalysis, stopAnalysis } from "../api/routes";
import type { ProfileId } from "../api/types";
import { type Lang, lang } from "../i18n";
import { visible } from "./host";
import { Remote, type RemoteState } from "./remote";

/** The profile that is shown, once the logdir is known to hold it. */
export const shownProfile = signal<ProfileId | null>(null);
/** Counts up when the files of the shown profile were rewritten: what is known of it is then old. */
export const revision = signal(0);

export type ProfileFetcher<T> = (profile: ProfileId, lang: Lang, options: RequestOptions) => Promise<T>;

/** A route's answer about the shown profile: loaded when a view first needs it, and again when it is outdated. */
export class Resource<T> {
  readonly remote = new Remote<T>();
  private loaded = "";
  private profile = "";
  private running: Promise<void> = Promise.resolve();

  /**
   * @param speaks whether the answer holds sentences, so that another language needs another answer.
   */
  constructor(
    private readonly fetcher: ProfileFetcher<T>,
    private readonly speaks = false,
  ) {}

  /** Loads unless what is there (or on its way) is what is wanted. */
  want(again = false): void {
    const profile = shownProfile.peek();
    if (!profile) {
      this.remote.clear();
      this.loaded = "";
      return;
    }
    const name = JSON.stringify([profile.run, profile.session]);
    const key = `${name}|${revision.peek()}|${this.speaks ? lang.peek() : ""}`;
    const settled = this.remote.peek().status;
    if (!again && key === this.loaded && settled !== "failed" && settled !== "idle") return;
    const same = name === this.profile;
    this.loaded = key;
    this.profile = name;
    this.running = this.remote.load((options) => this.fetcher(profile, lang.peek(), options), same);
  }

  /** What there is, once it is there; null when it does not come. */
  async get(): Promise<T | null> {
    this.want();
    await this.running;
    return this.remote.peek().data;
  }

  /** After a failure: asks again, and the server tries anew. */
  retry(): void {
    const profile = shownProfile.peek();
    if (profile) void retryAnalysis(profile).then(() => this.want(true));
  }

  /** Stops waiting, and the server's work with it. */
  cancel(): void {
    const profile = shownProfile.peek();
    if (this.remote.peek().progress && profile) stopAnalysis(profile);
    this.remote.cancel();
  }
}

/** The answer for a view that is shown: asks for it, and follows the profile, its files and the language. */
export function useResource<T>(resource: Resource<T>): RemoteState<T> {
  const profile = shownProfile.value;
  const now = revision.value;
  const language = lang.value;
  const shown = visible.value;
  useEffect(() => {
    if (shown) resource.want();
  }, [resource, profile, now, language, shown]);
  return resource.remote.value;
}
