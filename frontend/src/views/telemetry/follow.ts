import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { isSnapshot } from "../../api/snapshot/file";
import type { LiveAnswer, SeriesAnswer, TelemetryAnswer } from "../../api/telemetry";
import { choiceParam } from "../../state/params";
import { wholeWindow } from "./data";
import { shownWindow, type Window } from "./state";

/** Following a training that runs: the end of its recording is asked for again and again. */

/** How much of the end is shown, in minutes; all: the whole recording. */
export const LAST_MINUTES = ["all", "5", "15", "60"] as const;
export const lastMinutes = choiceParam("telemetry_last", LAST_MINUTES, { ofProfile: false });

/** What the user chose; null: followed by itself as long as the training runs. */
export const wanted = signal<boolean | null>(null);

const EVERY_MS = 5000;
/** Recorded until so lately, a training may still run: clocks differ, and stores are written twice a minute. */
const RECENT_MS = 120_000;

export function mayRun(answer: TelemetryAnswer, now: number): boolean {
  const end = wholeWindow(answer)?.endMs;
  return !isSnapshot() && end !== undefined && Math.abs(now - end) < RECENT_MS;
}

export const isLive = (data: SeriesAnswer | LiveAnswer | null): data is LiveAnswer =>
  data !== null && "running" in data;

export interface Follow {
  /** Whether there is anything to follow, so that it is offered. */
  offered: boolean;
  on: boolean;
  /** Grows with each look. */
  look: number;
}

/** Whether the view follows, and when it looks again; what is zoomed into stays as it is. */
export function useFollow(answer: TelemetryAnswer, data: SeriesAnswer | LiveAnswer | null): Follow {
  const [look, setLook] = useState(0);
  const [ended, setEnded] = useState(false);
  useEffect(() => {
    if (isLive(data)) setEnded(!data.running);
  }, [data]);
  const offered = mayRun(answer, Date.now()) || (wanted.value !== null && !isSnapshot());
  const on = offered && shownWindow.value === null && (wanted.value ?? !ended);
  useEffect(() => {
    if (!on) return;
    const timer = setInterval(() => {
      if (document.visibilityState !== "hidden") setLook((n) => n + 1);
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, [on]);
  return { offered, on, look };
}

/** What is shown while nothing is followed: what was zoomed into, else the end that was asked for. */
export function stillWindow(answer: TelemetryAnswer, offered: boolean): Window | null {
  const end = wholeWindow(answer)?.endMs;
  const seconds = secondsShown();
  if (shownWindow.value || !offered || !seconds || end === undefined) return shownWindow.value;
  return { startMs: end - seconds * 1000, endMs: end };
}

export const secondsShown = (): number => (lastMinutes.value === "all" ? 0 : Number(lastMinutes.value) * 60);
