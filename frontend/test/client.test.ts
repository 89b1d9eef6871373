import type { ServerResponse } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { getBytes, getJson } from "../src/api/client";
import { type ApiError, isAbort } from "../src/api/errors";
import { findProfiler, profilerHosts } from "../src/api/profiler";
import { Remote } from "../src/state/remote";
import { json, serve } from "./server";

let close: (() => Promise<void>) | null = null;
afterEach(async () => {
  await close?.();
  close = null;
});

async function start(answer: (url: URL, response: ServerResponse) => void): Promise<void> {
  ({ close } = await serve(answer));
}

const failure = (promise: Promise<unknown>): Promise<ApiError> =>
  promise.then(
    () => Promise.reject(new Error("did not fail")),
    (error) => error as ApiError,
  );

describe("requests", () => {
  it("wait while the server works, and tell how far it is", async () => {
    let calls = 0;
    await start((url, response) => {
      expect(url.pathname).toBe("/data/plugin/gpu_doctor/diagnosis");
      expect(url.searchParams.get("run")).toBe("a/b&c");
      calls += 1;
      if (calls < 3) json(response, 202, { state: "running", stage: "decoding", progress: calls / 3 });
      else json(response, 200, { fine: true });
    });
    const seen: number[] = [];
    const answer = await getJson(
      "diagnosis",
      { run: "a/b&c" },
      { onProgress: (progress) => seen.push(progress.progress) },
    );
    expect(answer).toEqual({ fine: true });
    expect(seen).toEqual([1 / 3, 2 / 3]);
  });

  it("pass on the server's own words", async () => {
    await start((_, response) =>
      json(response, 422, { error: { code: "truncated", message: "Cut off.", path: "x.pb" } }),
    );
    expect(await failure(getJson("diagnosis"))).toMatchObject({
      code: "truncated",
      message: "Cut off.",
      path: "x.pb",
      status: 422,
    });
  });

  it("tell a proxy's page and a broken answer from ours", async () => {
    await start((url, response) => {
      response.writeHead(url.pathname.endsWith("bad") ? 200 : 502, { "content-type": "text/html" });
      response.end("<h1>Bad gateway</h1>");
    });
    expect(await failure(getJson("diagnosis"))).toMatchObject({ code: "http", status: 502 });
    expect(await failure(getJson("bad"))).toMatchObject({ code: "format" });
  });

  it("say when nobody answers", async () => {
    await start((_, response) => response.destroy());
    expect(await failure(getBytes("timeline/bins", {}))).toMatchObject({ code: "network", status: 0 });
  });

  it("can be given up while they wait", async () => {
    await start((_, response) => json(response, 202, { state: "queued", stage: "reading", progress: 0 }));
    const controller = new AbortController();
    const promise = failure(
      getJson("diagnosis", {}, { signal: controller.signal, onProgress: () => controller.abort() }),
    );
    expect(isAbort(await promise)).toBe(true);
  });
});

describe("Remote", () => {
  it("shows the answer of the last load only", async () => {
    await start((url, response) => {
      const n = url.searchParams.get("n");
      setTimeout(() => json(response, 200, n), n === "1" ? 150 : 10);
    });
    const remote = new Remote<string>();
    const first = remote.load((options) => getJson("x", { n: 1 }, options));
    const second = remote.load((options) => getJson("x", { n: 2 }, options));
    await Promise.all([first, second]);
    expect(remote.peek()).toMatchObject({ status: "ready", data: "2" });
  });

  it("keeps what was shown when a reload fails, and forgets it when told", async () => {
    let fail = false;
    await start((_, response) => (fail ? json(response, 500, {}) : json(response, 200, "old")));
    const remote = new Remote<string>();
    await remote.load((options) => getJson("x", {}, options));
    fail = true;
    await remote.load((options) => getJson("x", {}, options), true);
    expect(remote.peek()).toMatchObject({ status: "failed", data: "old", error: { status: 500 } });
    remote.clear();
    expect(remote.peek()).toMatchObject({ status: "idle", data: null });
  });
});

describe("the stock Profiler", () => {
  it("is there, with its runs and hosts", async () => {
    await start((url, response) => {
      if (url.pathname === "/data/plugins_listing") json(response, 200, { profile: {}, gpu_doctor: {} });
      else if (url.pathname === "/data/plugin/profile/version") response.end("2.24.2");
      else if (url.pathname === "/data/plugin/profile/runs") json(response, 200, ["train/2026"]);
      else if (url.pathname === "/data/plugin/profile/hosts") {
        expect(url.searchParams.get("run")).toBe("train/2026");
        json(response, 200, [{ hostname: "worker0" }, { hostname: null }]);
      } else response.writeHead(404).end();
    });
    expect((await findProfiler())?.runs.has("train/2026")).toBe(true);
    expect(await profilerHosts({ run: "train", session: "2026" })).toEqual(["worker0"]);
  });

  it("is not asked where TensorBoard has not loaded it", async () => {
    await start((url, response) => {
      expect(url.pathname).toBe("/data/plugins_listing");
      json(response, 200, { gpu_doctor: {} });
    });
    expect(await findProfiler()).toBeNull();
  });

  it("is not there", async () => {
    await start((_, response) => response.writeHead(404).end());
    expect(await findProfiler()).toBeNull();
    expect(await profilerHosts({ run: "", session: "s" })).toEqual([]);
  });
});
