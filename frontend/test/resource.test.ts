import { afterEach, describe, expect, it } from "vitest";
import { getJson } from "../src/api/client";
import { lang } from "../src/i18n";
import { Resource, revision, shownProfile } from "../src/state/resource";
import { json, serve } from "./server";

let close: (() => Promise<void>) | null = null;
afterEach(async () => {
  shownProfile.value = null;
  await close?.();
});

async function start(busy = 0) {
  const asked: string[] = [];
  const stopped: string[] = [];
  let left = busy;
  ({ close } = await serve((url, response, request) => {
    if (request.method === "POST") {
      // Who waits no longer, and what only our own page can send.
      expect(request.headers["x-gpu-doctor-viewer"]).toMatch(/^[A-Za-z0-9-]{8,64}$/);
      stopped.push(`${url.pathname.split("/").at(-1)} ${url.searchParams.get("run")}`);
      json(response, 200, { state: "unknown", stage: "reading", progress: 0 });
      return;
    }
    asked.push(`${url.searchParams.get("run")}|${url.searchParams.get("lang") ?? ""}`);
    left -= 1;
    if (left >= 0) json(response, 202, { state: "running", stage: "decoding", progress: 0.5 });
    else json(response, 200, { run: url.searchParams.get("run"), count: asked.length });
  }));
  const fetcher = (speaks: boolean) =>
    new Resource<{ run: string; count: number }>(
      ({ run, session }, language, options) =>
        getJson("x", { run, session, ...(speaks ? { lang: language } : {}) }, options),
      speaks,
    );
  return { asked, stopped, fetcher };
}

describe("an answer about the shown profile", () => {
  it("is asked for once, and again for another profile or rewritten files", async () => {
    const { asked, fetcher } = await start();
    const resource = fetcher(false);
    expect(await resource.get()).toBeNull();
    shownProfile.value = { run: "a", session: "s" };
    expect((await resource.get())?.run).toBe("a");
    await resource.get();
    lang.value = "es";
    await resource.get();
    expect(asked).toEqual(["a|"]);
    revision.value += 1;
    const reloading = resource.get();
    // What is known of the same profile stays until the new answer is in.
    expect(resource.remote.peek().data?.count).toBe(1);
    expect((await reloading)?.count).toBe(2);
    shownProfile.value = { run: "b", session: "s" };
    const other = resource.get();
    expect(resource.remote.peek().data).toBeNull();
    expect((await other)?.run).toBe("b");
    lang.value = "en";
  });

  it("is asked for in another language only if it speaks", async () => {
    const { asked, fetcher } = await start();
    const resource = fetcher(true);
    shownProfile.value = { run: "a", session: "s" };
    await resource.get();
    lang.value = "es";
    await resource.get();
    lang.value = "en";
    expect(asked).toEqual(["a|en", "a|es"]);
  });

  it("can be waited for no longer, and asked for again", async () => {
    const { stopped, fetcher } = await start(3);
    const resource = fetcher(false);
    shownProfile.value = { run: "a", session: "s" };
    resource.want();
    await expect.poll(() => resource.remote.peek().progress?.progress).toBe(0.5);
    resource.cancel();
    expect(resource.remote.peek()).toMatchObject({ status: "cancelled", data: null });
    await expect.poll(() => stopped).toEqual(["cancel a"]);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(resource.remote.peek().status).toBe("cancelled");
    resource.want(true);
    await expect.poll(() => resource.remote.peek().status, { timeout: 5000 }).toBe("ready");
  });
});
