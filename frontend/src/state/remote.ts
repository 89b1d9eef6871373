import { type ReadonlySignal, signal } from "@preact/signals";
import type { RequestOptions } from "../api/client";
import { type ApiError, asApiError, isAbort } from "../api/errors";
import type { Progress } from "../api/types";
import { whenVisible } from "./host";

/** What is known of something that the server answers. `data` survives a reload until the next answer. */
export interface RemoteState<T> {
  status: "idle" | "loading" | "ready" | "failed" | "cancelled";
  data: T | null;
  error: ApiError | null;
  progress: Progress | null;
}

const IDLE = { status: "idle", data: null, error: null, progress: null } as const;

/** One answer of the server as a signal; a new load gives up the one before. */
export class Remote<T> {
  private readonly state = signal<RemoteState<T>>(IDLE);
  private running: AbortController | null = null;

  get value(): RemoteState<T> {
    return this.state.value;
  }

  get signal(): ReadonlySignal<RemoteState<T>> {
    return this.state;
  }

  peek(): RemoteState<T> {
    return this.state.peek();
  }

  /** Gives up a running load and forgets the data. */
  clear(): void {
    this.running?.abort();
    this.running = null;
    this.state.value = IDLE;
  }

  /** Gives up a running load; what was there before stays. */
  cancel(): void {
    if (this.state.peek().status !== "loading") return;
    this.running?.abort();
    this.running = null;
    const { data } = this.state.peek();
    this.state.value = data ? { ...IDLE, status: "ready", data } : { ...IDLE, status: "cancelled" };
  }

  /** Loads; resolves when settled (never rejects). With `keep`, the data before stays visible meanwhile. */
  async load(fetcher: (options: RequestOptions) => Promise<T>, keep = false): Promise<void> {
    this.running?.abort();
    const controller = new AbortController();
    this.running = controller;
    const current = () => this.running === controller;
    this.state.value = { ...IDLE, status: "loading", data: keep ? this.state.peek().data : null };
    try {
      await whenVisible();
      if (!current()) return;
      const data = await fetcher({
        signal: controller.signal,
        onProgress: (progress) => {
          if (current()) this.state.value = { ...this.state.peek(), progress };
        },
      });
      if (current()) this.state.value = { status: "ready", data, error: null, progress: null };
    } catch (error) {
      if (!current() || isAbort(error)) return;
      this.state.value = {
        status: "failed",
        data: keep ? this.state.peek().data : null,
        error: asApiError(error),
        progress: null,
      };
    }
  }
}
