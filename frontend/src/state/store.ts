import { batch, computed, effect, signal } from "@preact/signals";
import { sleep } from "../api/client";
import { findProfiler, type ProfilerInfo, profilerHosts, profilerRun } from "../api/profiler";
import { fetchDiagnosis, fetchKernels, fetchMeta, fetchSessions } from "../api/routes";
import type { Diagnosis, KernelsAnswer, ProfileId, SessionInfo, SessionsAnswer, TimelineMeta } from "../api/types";
import { chooseLang, isLang, type Lang, lang } from "../i18n";
import { loadSetting, onDataReloaded, onHashChange, readHash, saveSetting, visible, writeHash } from "./host";
import { Remote } from "./remote";
import { formatHash, parseHash, type UrlState } from "./url";

/** A range of the timeline in the profile's own milliseconds. */
export interface TimeRange {
  startMs: number;
  endMs: number;
}

/** A stretch that a finding points at: drawn over the timeline. */
export interface Highlight extends TimeRange {
  host: string;
  /** Empty: all of the host. */
  gpus: readonly number[];
}

export const sessions = new Remote<SessionsAnswer>();
export const diagnosis = new Remote<Diagnosis>();
export const meta = new Remote<TimelineMeta>();
export const kernels = new Remote<KernelsAnswer>();

export const selected = signal<ProfileId | null>(null);
/** null: all of the recording. */
export const timeRange = signal<TimeRange | null>(null);
export const highlight = signal<Highlight | null>(null);
export const kernelFilter = signal("");
export const kernelSort = signal("-total_ms");
export const kernelDevice = signal<number | null>(null);

/** Up to this many intervals a part of the timeline is drawn from intervals, beyond from bins. */
export const EVENT_LIMIT = 200_000;
const HIGHEST_EVENT_LIMIT = 2_000_000;
/** Only the address (`p.gpu_doctor.intervals`) changes it, for measuring and for fast connections. */
export const eventLimit = signal(EVENT_LIMIT);

/** undefined: not asked yet; null: not installed. */
export const profiler = signal<ProfilerInfo | null | undefined>(undefined);
export const profilerHostList = signal<string[]>([]);

export const sameProfile = (a: ProfileId | null, b: ProfileId | null): boolean =>
  a === b || (!!a && !!b && a.run === b.run && a.session === b.session);

export const selectedInfo = computed<SessionInfo | null>(
  () => sessions.value.data?.sessions.find((session) => sameProfile(session, selected.value)) ?? null,
);

/** Counts up whenever evidence asks for the timeline, so that it scrolls into view each time. */
export const timelineCalls = signal(0);

export function showEvidence(range: Highlight): void {
  const length = Math.max(range.endMs - range.startMs, 1e-6);
  batch(() => {
    highlight.value = range;
    timeRange.value = { startMs: range.startMs - length, endMs: range.endMs + length };
    timelineCalls.value += 1;
  });
}

export function selectProfile(profile: ProfileId): void {
  missingSession.value = null;
  if (sameProfile(profile, selected.peek())) return;
  batch(() => {
    timeRange.value = null;
    highlight.value = null;
    kernelFilter.value = "";
    kernelDevice.value = null;
    selected.value = { run: profile.run, session: profile.session };
  });
}

let analysisKey = "";

type LoadReason = "chosen" | "language" | "rewritten";

/** Loads all of the chosen profile; what is shown of the same one stays until the new answers are in. */
async function loadProfile(profile: ProfileId, language: Lang, reason: LoadReason): Promise<void> {
  const keep = reason !== "chosen";
  if (reason === "chosen") {
    profilerHostList.value = [];
    meta.clear();
    kernels.clear();
  }
  const key = JSON.stringify([profile, language]);
  analysisKey = key;
  await diagnosis.load((options) => fetchDiagnosis(profile, language, options), keep);
  if (analysisKey !== key) return;
  // Only the diagnosis speaks a language; the numbers stay.
  if (reason === "language" && meta.peek().status === "ready" && kernels.peek().status === "ready") return;
  await Promise.all([
    meta.load((options) => fetchMeta(profile, language, options), keep),
    kernels.load((options) => fetchKernels(profile, language, options), keep),
    loadProfilerHosts(profile),
  ]);
}

async function loadProfilerHosts(profile: ProfileId): Promise<void> {
  try {
    if (profiler.peek() === undefined) profiler.value = await findProfiler();
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
  const failed = diagnosis.peek().status === "failed";
  if (selected.peek() && sameProfile(before, after) && (rewritten || failed)) {
    void loadProfile(selected.peek()!, lang.peek(), "rewritten");
  }
}

/** The session of a link that this logdir does not hold. */
export const missingSession = signal<ProfileId | null>(null);
/** Whether the choice came from the address bar (and not from the memory of another visit). */
let wished = false;

/** Keeps the choice where it still exists; otherwise the wanted one of the address, then the newest readable one. */
function pickSession(answer: SessionsAnswer): void {
  const current = selected.peek();
  if (current && (answer.scanning || answer.sessions.some((session) => sameProfile(session, current)))) return;
  const first = answer.sessions.find((session) => !session.problem) ?? answer.sessions[0];
  if (first) selectProfile(first);
  else selected.value = null;
  if (current && wished) missingSession.value = current;
}

/** The state of the view as key/value pairs for the address bar. */
function currentUrlState(): UrlState {
  const state: Record<string, string> = {};
  const profile = selected.value;
  if (profile) {
    if (profile.run) state.run = profile.run;
    state.session = profile.session;
  }
  const range = timeRange.value;
  if (range) {
    state.start_ms = String(round(range.startMs));
    state.end_ms = String(round(range.endMs));
  }
  if (kernelFilter.value) state.kernel = kernelFilter.value;
  if (kernelSort.value !== "-total_ms") state.sort = kernelSort.value;
  if (kernelDevice.value !== null) state.gpu = String(kernelDevice.value);
  if (eventLimit.value !== EVENT_LIMIT) state.intervals = String(eventLimit.value);
  if (lang.value !== chooseLang(null)) state.lang = lang.value;
  return state;
}

/** Nanoseconds are as fine as the address needs to be. */
const round = (ms: number) => Math.round(ms * 1e6) / 1e6;

function applyUrlState(state: UrlState): void {
  batch(() => {
    if (state.session) {
      const profile = { run: state.run ?? "", session: state.session };
      if (!sameProfile(profile, selected.peek())) selected.value = profile;
    }
    const startMs = Number(state.start_ms);
    const endMs = Number(state.end_ms);
    timeRange.value = state.start_ms && state.end_ms && endMs > startMs ? { startMs, endMs } : null;
    kernelFilter.value = state.kernel ?? "";
    if (state.sort) kernelSort.value = state.sort;
    const gpu = Number(state.gpu);
    kernelDevice.value = state.gpu && Number.isInteger(gpu) && gpu >= 0 ? gpu : null;
    const intervals = Number(state.intervals);
    if (intervals > 0) eventLimit.value = Math.min(Math.round(intervals), HIGHEST_EVENT_LIMIT);
    if (isLang(state.lang)) lang.value = state.lang;
  });
}

/** The hash of what is shown: for links to share, whatever the address bar says. */
export const shareHash = computed(() => formatHash("", currentUrlState()));

const HASH_WRITE_MS = 200;

/** Wires the state to the address bar, the storage and TensorBoard; call once. */
export function startStore(): void {
  const stored = loadSetting("lang");
  if (isLang(stored)) lang.value = stored;
  const fromAddress = parseHash(readHash());
  const remembered = Object.keys(fromAddress).length ? fromAddress : parseHash(loadSetting("view") ?? "");
  wished = "session" in fromAddress;
  applyUrlState(remembered);
  // A remembered view is only a wish: its session may be of another logdir.
  let written = readHash();
  onHashChange(() => {
    if (!visible.peek() || readHash() === written) return;
    const state = parseHash(readHash());
    if (state.session) applyUrlState(state);
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

  let language = lang.peek();
  let profile: ProfileId | null = null;
  effect(() => {
    const next = selected.value;
    const nextLanguage = lang.value;
    if (!next) {
      profile = null;
      analysisKey = "";
      diagnosis.clear();
      meta.clear();
      kernels.clear();
      return;
    }
    // The choice of the address may not exist: wait for the list before asking for its analysis.
    const answer = sessions.value.data;
    if (!answer?.sessions.some((session) => sameProfile(session, next))) return;
    if (sameProfile(profile, next) && language === nextLanguage) return;
    const reason = sameProfile(profile, next) ? "language" : "chosen";
    profile = next;
    language = nextLanguage;
    void loadProfile(next, nextLanguage, reason);
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

/** A reload may reach hidden tabs too: becoming visible refreshes them anyway. */
async function refreshWhenShown(): Promise<void> {
  if (!visible.peek()) return;
  profiler.value = undefined;
  await refreshSessions();
}
