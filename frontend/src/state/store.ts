import { batch, computed, effect, signal } from "@preact/signals";
import { sleep } from "../api/client";
import { findProfiler, type ProfilerInfo, profilerHosts, profilerRun } from "../api/profiler";
import { fetchDiagnosis, fetchMeta, fetchSessions, retryAnalysis } from "../api/routes";
import { isSnapshot } from "../api/snapshot/file";
import type { Diagnosis, ProfileId, SessionInfo, SessionsAnswer, TimelineMeta } from "../api/types";
import { isLang, type Lang, lang } from "../i18n";
import { loadSetting, onDataReloaded, onHashChange, readHash, saveSetting, visible, writeHash } from "./host";
import { applyParams, param, paramState, resetProfileParams } from "./params";
import { Remote } from "./remote";
import { Resource, revision, shownProfile } from "./resource";
import { formatHash, parseHash, type UrlState } from "./url";
import { VIEW_IDS, type ViewId } from "./viewIds";

/** A range of the timeline in the profile's own milliseconds. */
export interface TimeRange {
  startMs: number;
  endMs: number;
}

/** A stretch that a finding, a step or a gap points at: drawn over the timeline. */
export interface Highlight extends TimeRange {
  host: string;
  /** Empty: all of the host. */
  gpus: readonly number[];
}

export const sessions = new Remote<SessionsAnswer>();
export const diagnosis = new Remote<Diagnosis>();
export const metaResource = new Resource<TimelineMeta>(fetchMeta);
export const meta = metaResource.remote;

export const selected = signal<ProfileId | null>(null);

/** Nanoseconds are as fine as the address needs to be. */
const round = (ms: number) => Math.round(ms * 1e6) / 1e6;

const rangeCodec = {
  parse: (text: string): TimeRange | undefined => {
    const [startMs, endMs] = text.split("~").map(Number);
    return Number.isFinite(startMs) && endMs > startMs ? { startMs, endMs } : undefined;
  },
  format: (range: TimeRange | null) => (range ? `${round(range.startMs)}~${round(range.endMs)}` : ""),
};

export const view = param<ViewId>(
  "view",
  "verdict",
  { parse: (text) => VIEW_IDS.find((id) => id === text), format: (id) => id },
  { ofProfile: false },
);
/** What the timeline shows; null: the analysed window. */
export const timeRange = param<TimeRange | null>("range", null, rangeCodec);
/** The part of the timeline whose accounting is shown. */
export const selection = param<TimeRange | null>("selection", null, rangeCodec);
export const highlight = param<Highlight | null>("mark", null, {
  parse: (text) => {
    const [range, gpus, ...host] = text.split("|");
    const parsed = rangeCodec.parse(range);
    const ids = (gpus ?? "").split(",").filter(Boolean).map(Number);
    return parsed && ids.every(Number.isInteger) ? { ...parsed, gpus: ids, host: host.join("|") } : undefined;
  },
  format: (mark) => (mark ? `${rangeCodec.format(mark)}|${mark.gpus.join(",")}|${mark.host}` : ""),
});

/** Up to this many intervals a part of the timeline is drawn from intervals, beyond from bins. */
export const EVENT_LIMIT = 200_000;
const HIGHEST_EVENT_LIMIT = 2_000_000;
/** Only the address (`p.gpu_doctor.intervals`) changes it, for measuring and for fast connections. */
export const eventLimit = param<number>(
  "intervals",
  EVENT_LIMIT,
  {
    parse: (text) => (Number(text) > 0 ? Math.min(Math.round(Number(text)), HIGHEST_EVENT_LIMIT) : undefined),
    format: String,
  },
  { ofProfile: false },
);

/** undefined: not asked yet; null: not installed. */
export const profiler = signal<ProfilerInfo | null | undefined>(undefined);
export const profilerHostList = signal<string[]>([]);

export const sameProfile = (a: ProfileId | null, b: ProfileId | null): boolean =>
  a === b || (!!a && !!b && a.run === b.run && a.session === b.session);

/** What is known of a session: of one in the list, or of several that one of them offers to read as one job. */
export function infoOf(all: readonly SessionInfo[], profile: ProfileId | null): SessionInfo | null {
  if (!profile) return null;
  const found = all.find((session) => sameProfile(session, profile));
  if (found) return found;
  const offering = all.find(({ run, related }) => run === profile.run && related?.session === profile.session);
  if (!offering?.related) return null;
  const parts = all.filter((session) => offering.related?.sessions.some((part) => sameProfile(part, session)));
  return {
    ...offering,
    session: profile.session,
    label: parts.map(({ label }) => label).join(" + "),
    hosts: offering.related.hosts,
    size_bytes: parts.reduce((sum, { size_bytes }) => sum + size_bytes, 0),
    modified_unix_s: Math.max(...parts.map(({ modified_unix_s }) => modified_unix_s)),
    related: null,
  };
}

export const selectedInfo = computed<SessionInfo | null>(() =>
  infoOf(sessions.value.data?.sessions ?? [], selected.value),
);

/** Counts up whenever something asks to see a place of the timeline, so that it takes the focus each time. */
export const timelineCalls = signal(0);

/** Opens the timeline around a stretch and marks it. Its times are the timeline's. */
export function showOnTimeline(range: Highlight): void {
  const length = Math.max(range.endMs - range.startMs, 1e-6);
  batch(() => {
    highlight.value = range;
    timeRange.value = { startMs: range.startMs - length, endMs: range.endMs + length };
    selection.value = null;
    view.value = "timeline";
    timelineCalls.value += 1;
  });
}

/** How far the timeline's clock is ahead of a host's own. */
export function offsetMs(data: TimelineMeta | null, host: string): number {
  const lane = data?.lanes.find((each) => each.host === host) ?? null;
  return (lane?.offset_ps ?? 0) / 1e9;
}

/** The same for a stretch on a host's own clock, as findings have them. */
export async function showEvidence(range: Highlight): Promise<void> {
  view.value = "timeline";
  const shift = offsetMs(await metaResource.get(), range.host);
  showOnTimeline({ ...range, startMs: range.startMs + shift, endMs: range.endMs + shift });
}

export function selectProfile(profile: ProfileId): void {
  if (sameProfile(profile, selected.peek())) return;
  batch(() => {
    resetProfileParams();
    selected.value = { run: profile.run, session: profile.session };
  });
}

let profileKey = "";

/** Loads the diagnosis of the shown profile; what is shown of the same one stays until the new answer is in. */
export function loadDiagnosis(): void {
  const profile = shownProfile.peek();
  if (!profile) {
    profileKey = "";
    diagnosis.clear();
    return;
  }
  const key = JSON.stringify(profile);
  const keep = key === profileKey;
  if (!keep) profilerHostList.value = [];
  profileKey = key;
  const language: Lang = lang.peek();
  void diagnosis.load((options) => fetchDiagnosis(profile, language, options), keep);
  void loadProfilerHosts(profile);
}

/** After a failure: the server tries anew. */
export function retryDiagnosis(): void {
  const profile = shownProfile.peek();
  if (profile) void retryAnalysis(profile).then(loadDiagnosis);
}

async function loadProfilerHosts(profile: ProfileId, again = false): Promise<void> {
  // A report stands alone: there is no Profiler beside it.
  if (isSnapshot()) return;
  try {
    if (again || profiler.peek() === undefined) profiler.value = await findProfiler();
    if (!profiler.peek()?.runs.has(profilerRun(profile))) return;
    const hosts = await profilerHosts(profile);
    if (sameProfile(profile, selected.peek())) profilerHostList.value = hosts;
  } catch {
    // The links are an extra: without an answer there are none.
    if (profiler.peek() === undefined) profiler.value = null;
  }
}

const SCAN_POLL_MS = 700;

/** Asks what the logdir holds, again while the server still scans. */
export async function refreshSessions(): Promise<void> {
  const before = selectedInfo.peek();
  for (;;) {
    await sessions.load((options) => fetchSessions(lang.peek(), options), true);
    const answer = sessions.peek();
    if (answer.status !== "ready" || !answer.data) return;
    pickSession(answer.data);
    if (!answer.data.scanning) break;
    await sleep(SCAN_POLL_MS);
    if (sessions.peek() !== answer) return;
  }
  const after = selectedInfo.peek();
  const rewritten =
    before && after && (before.modified_unix_s !== after.modified_unix_s || before.size_bytes !== after.size_bytes);
  if (!after || !sameProfile(before, after)) return;
  if (rewritten) revision.value += 1;
  else if (diagnosis.peek().status === "failed") loadDiagnosis();
}

/** Whether the choice came from the address bar (and not from the memory of another visit). */
const wished = signal(false);

/** The session of a link that this logdir does not hold. */
export const missingSession = computed<ProfileId | null>(() => {
  const answer = sessions.value.data;
  if (!answer || answer.scanning || !answer.sessions.length || !wished.value || selectedInfo.value) return null;
  return selected.value;
});

/** Without a wish of a link: the choice where it still exists, otherwise the newest readable session. */
function pickSession(answer: SessionsAnswer): void {
  const current = selected.peek();
  if (current && (wished.peek() || answer.scanning)) return;
  if (infoOf(answer.sessions, current)) return;
  const first = answer.sessions.find((session) => !session.problem) ?? answer.sessions[0];
  if (first) selectProfile(first);
  else selected.value = null;
}

/** The state of the page as key/value pairs for the address bar. */
function currentUrlState(): UrlState {
  const state: Record<string, string> = { ...paramState(), lang: lang.value };
  const profile = selected.value;
  if (profile) {
    if (profile.run) state.run = profile.run;
    state.session = profile.session;
  }
  return state;
}

function applyUrlState({ run, session, lang: language, ...parts }: UrlState): void {
  batch(() => {
    if (session) {
      const profile = { run: run ?? "", session };
      if (!sameProfile(profile, selected.peek())) selected.value = profile;
    }
    applyParams(parts);
    if (isLang(language)) lang.value = language;
  });
}

/** The hash of what is shown: for links to share, whatever the address bar says. */
export const shareHash = computed(() => formatHash("", currentUrlState()));

const HASH_WRITE_MS = 200;

/** Wires the state to the address bar, the storage and TensorBoard; call once. */
export function startStore(): void {
  const fromAddress = parseHash(readHash());
  const linked = Object.keys(fromAddress).length > 0;
  // A remembered view is only a wish: its session may be of another logdir.
  const remembered = linked ? fromAddress : parseHash(loadSetting("view") ?? "");
  wished.value = "session" in fromAddress;
  applyUrlState(remembered);
  // A link speaks its sender's language; otherwise what was chosen by hand holds.
  const stored = loadSetting("lang");
  if (!isLang(fromAddress.lang) && isLang(stored)) lang.value = stored;
  let written = readHash();
  onHashChange(() => {
    if (!visible.peek() || readHash() === written) return;
    const state = parseHash(readHash());
    if (!state.session) return;
    wished.value = true;
    applyUrlState(state);
  });

  let timer = 0;
  effect(() => {
    const state = currentUrlState();
    const shown = visible.value;
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      saveSetting("view", formatHash("", state));
      if (!shown || !selected.peek()) return;
      written = formatHash(readHash(), state);
      if (written !== readHash()) writeHash(written);
    }, HASH_WRITE_MS);
  });

  effect(() => {
    // The choice of the address may not exist: wait for the list before asking for its analysis.
    const info = selectedInfo.value;
    const next = info ? { run: info.run, session: info.session } : null;
    if (!sameProfile(next, shownProfile.peek())) shownProfile.value = next;
  });
  effect(() => {
    shownProfile.value;
    lang.value;
    revision.value;
    loadDiagnosis();
  });

  onDataReloaded(() => void refreshWhenShown());
  let wasVisible = visible.peek();
  effect(() => {
    const now = visible.value;
    if (now && !wasVisible) void refreshSessions();
    wasVisible = now;
  });
  void refreshSessions();
}

/** The server rests between two scans, and answers from the last one meanwhile: a second look finds what is new. */
const SECOND_LOOK_MS = 3500;
let secondLook: ReturnType<typeof setTimeout> | undefined;

/** What the reload button of TensorBoard and our own one ask for. */
export async function reload(): Promise<void> {
  clearTimeout(secondLook);
  await refreshSessions();
  if (shownProfile.peek()) void loadProfilerHosts(shownProfile.peek()!, true);
  secondLook = setTimeout(() => {
    if (visible.peek()) void refreshSessions();
  }, SECOND_LOOK_MS);
}

/** A reload may reach hidden tabs too: becoming visible refreshes them anyway. */
async function refreshWhenShown(): Promise<void> {
  if (visible.peek()) await reload();
}
