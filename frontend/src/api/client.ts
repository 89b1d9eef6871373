import { ApiError, isAbort } from "./errors";
import type { Progress } from "./types";

export interface RequestOptions {
  signal?: AbortSignal;
  /** Called for each 202 answer while the server still works. */
  onProgress?: (progress: Progress) => void;
}

export type Params = Record<string, string | number>;

const FIRST_POLL_MS = 120;
const LAST_POLL_MS = 1500;

/** The address of one of our routes: relative to the page's base, so path prefixes and proxies keep working. */
export function routeUrl(route: string, params: Params = {}, base: string = document.baseURI): URL {
  const url = new URL(route, base);
  for (const [key, value] of Object.entries(params)) url.searchParams.set(key, String(value));
  return url;
}

/** Waits, unless the request is given up first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("aborted", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

async function failure(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as { error?: { code?: string; message?: string; path?: string } };
    const error = body.error;
    if (error && typeof error.message === "string") {
      return new ApiError(error.code ?? "server", error.message, response.status, error.path || null);
    }
  } catch (error) {
    if (isAbort(error)) throw error;
    // Not our JSON: a proxy's page, or TensorBoard's own answer. The status still says something.
  }
  return new ApiError("http", `HTTP ${response.status}`, response.status);
}

/** Who answers: the server, or what a report of one file holds. */
export type Transport = (route: string, params: Params, signal?: AbortSignal) => Promise<Response>;

/** What this page is called among those that wait for the server: a header that no page of another site can send. */
const VIEWER = {
  "X-GPU-Doctor-Viewer": Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36)).join("-"),
};

let answer: Transport = (route, params, signal) => fetch(routeUrl(route, params), { signal, headers: VIEWER });

/** From now on somebody else answers in the server's place. */
export function answerFrom(transport: Transport): void {
  answer = transport;
}

/** Asks the server to change something; whether it did shows in its next answers. */
export async function post(route: string, params: Params): Promise<void> {
  try {
    await fetch(routeUrl(route, params), { method: "POST", headers: VIEWER });
  } catch {
    // The question that follows says what is wrong.
  }
}

/** Fetches a route, following 202 answers until the work behind them is done. */
async function request(route: string, params: Params, options: RequestOptions): Promise<Response> {
  let wait = FIRST_POLL_MS;
  for (;;) {
    let response: Response;
    try {
      response = await answer(route, params, options.signal);
    } catch (error) {
      if (isAbort(error)) throw error;
      throw new ApiError("network", error instanceof Error ? error.message : String(error), 0);
    }
    if (response.status === 202) {
      const progress = (await response.json()) as Progress;
      options.onProgress?.(progress);
      await sleep(wait, options.signal);
      wait = Math.min(wait * 1.5, LAST_POLL_MS);
      continue;
    }
    if (!response.ok) throw await failure(response);
    return response;
  }
}

export async function getJson<T>(route: string, params: Params = {}, options: RequestOptions = {}): Promise<T> {
  const response = await request(route, params, options);
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError(
      "format",
      `${route}: ${error instanceof Error ? error.message : String(error)}`,
      response.status,
    );
  }
}

export async function getBytes(route: string, params: Params, options: RequestOptions = {}): Promise<ArrayBuffer> {
  const response = await request(route, params, options);
  try {
    return await response.arrayBuffer();
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError("network", error instanceof Error ? error.message : String(error), 0);
  }
}
