import { afterEach, describe, expect, it } from "vitest";
import type { TimelineMeta } from "../src/api/types";
import type { Range } from "../src/charts/viewport";
import { TimelineData } from "../src/state/timeline";
import { serve } from "./server";
// @ts-expect-error: plain JavaScript of the stand-in backend
import * as synthetic from "./synthetic.mjs";

const PROFILE = { run: "slow_gpu", session: "s" };
const WIDTH = 300;

let close: (() => Promise<void>) | null = null;
let data: TimelineData | null = null;
afterEach(async () => {
  data?.close();
  await close?.();
});

async function start(
  limit: number,
  mostBins = Number.POSITIVE_INFINITY,
): Promise<{ data: TimelineData; meta: TimelineMeta; asked: string[] }> {
  const scenario = synthetic.scenario(PROFILE.run);
  const asked: string[] = [];
  ({ close } = await serve((url, response) => {
    const get = (key: string) => Number(url.searchParams.get(key));
    const route = url.pathname.split("/").pop()!;
    // How much waits: half of every pixel in which a lane may communicate.
    if (route === "waits") {
      const [lanes, width] = [scenario.meta.lanes.length, get("width")];
      const body = new Uint8Array(12 + lanes * width).fill(128);
      new Uint32Array(body.buffer, 0, 3).set([lanes, 1, width]);
      response.end(body);
      return;
    }
    asked.push(route);
    const body =
      route === "bins"
        ? synthetic.bins(scenario, get("start_ps"), get("end_ps"), Math.min(get("width"), mostBins))
        : synthetic.events(scenario, get("start_ps"), get("end_ps"), get("limit"));
    response.end(body);
  }));
  data = new TimelineData(PROFILE, scenario.meta, limit);
  return { data, meta: scenario.meta, asked };
}

/** Looks and waits until nothing more is loaded. */
async function look(timeline: TimelineData, view: Range): Promise<void> {
  timeline.look(view, WIDTH);
  let quiet = 0;
  while (quiet < 8) {
    await new Promise((resolve) => setTimeout(resolve, 25));
    quiet = timeline.loading.peek() ? 0 : quiet + 1;
  }
}

const sum = (values: Float32Array): number => values.reduce((a, b) => a + b, 0);

describe("TimelineData", () => {
  it("loads an overview, then all intervals of a small profile, and nothing more for closer looks", async () => {
    const { data: timeline, meta, asked } = await start(200_000);
    const all = { start: meta.start_ps, end: meta.end_ps };
    await look(timeline, all);
    expect(asked).toEqual(["bins", "events"]);
    const closer = { start: meta.window!.start_ps + 3e9, end: meta.window!.start_ps + 5e9 };
    await look(timeline, closer);
    expect(asked).toHaveLength(2);
    const found = timeline.intervalAt(closer, 0, closer.start);
    expect(found && found.start <= closer.start && found.end > closer.start).toBe(true);
    expect(timeline.intervalAt(closer, 0, meta.start_ps)).toBeNull();
  });

  it("draws the same from bins and from intervals", async () => {
    const few = await start(0);
    const view = { start: few.meta.window!.start_ps, end: few.meta.window!.end_ps };
    await look(few.data, view);
    expect(few.asked).toEqual(["bins"]);
    expect(few.data.intervalAt(view, 0, view.start)).toBeUndefined();
    // Coarse pixels: bins do not end where pixels do.
    const width = 30;
    const size = few.data.categories.length * width;
    const fromBins = new Float32Array(size);
    expect(few.data.cover(2, view, width, fromBins)).not.toBeNull();
    few.data.close();
    await close?.();
    const many = await start(200_000);
    await look(many.data, view);
    const fromEvents = new Float32Array(size);
    expect(many.data.cover(2, view, width, fromEvents)).not.toBeNull();
    for (let i = 0; i < size; i++) expect(Math.abs(fromBins[i] - fromEvents[i])).toBeLessThan(0.07);
    expect(sum(fromEvents)).toBeCloseTo(width, 3);
    expect(many.data.present()).toEqual([
      "compute",
      "communication",
      "communication_wait",
      "transfer",
      "launch",
      "kernel_gap",
    ]);
  });

  it("takes waiting out of communication, and never more than there is", async () => {
    const { data: timeline, meta } = await start(200_000);
    const view = { start: meta.window!.start_ps, end: meta.window!.end_ps };
    await look(timeline, view);
    const [width, n] = [40, timeline.categories.length];
    const whole = new Float32Array(n * width);
    const parts = new Float32Array(n * width);
    const active = timeline.cover(0, view, width, parts);
    expect(active).toContain(n - 1);
    expect(sum(parts)).toBeCloseTo(width, 3);
    const communication = timeline.categories.indexOf("communication");
    const row = (values: Float32Array, c: number) => values.subarray(c * width, (c + 1) * width);
    for (let x = 0; x < width; x++) {
      const together = row(parts, communication)[x] + row(parts, n - 1)[x];
      expect(row(parts, n - 1)[x]).toBeCloseTo(Math.min(together, 128 / 255), 5);
    }
    // One lane alone is its own mean; of several, each counts as much.
    const scratch = new Float32Array(n * width);
    timeline.coverMean([0], view, width, whole, scratch);
    expect([...whole]).toEqual([...parts]);
    timeline.coverMean([0, 1, 2], view, width, whole, scratch);
    expect(sum(whole)).toBeCloseTo(width, 3);
    const each = [0, 1, 2].map((lane) => {
      const out = new Float32Array(n * width);
      timeline.cover(lane, view, width, out);
      return out;
    });
    for (let i = 0; i < n * width; i++) expect(whole[i]).toBeCloseTo((each[0][i] + each[1][i] + each[2][i]) / 3, 5);
  });

  it("turns to bins when the server has more intervals than fit", async () => {
    const { data: timeline, meta, asked } = await start(1000);
    // Expected to fit by the average, but this stretch is denser: the recording ends idle.
    const dense = { start: meta.window!.start_ps, end: meta.window!.start_ps + 52e9 };
    await look(timeline, dense);
    expect(asked[0]).toBe("bins");
    expect(timeline.intervalAt(dense, 0, dense.start)).toBeUndefined();
    const out = new Float32Array(timeline.categories.length * WIDTH);
    expect(timeline.cover(0, dense, WIDTH, out)).not.toBeNull();
    expect(Math.abs(sum(out) / WIDTH - 1)).toBeLessThan(0.02);
  });

  it("asks for a view once where the server sends fewer bins than there are pixels", async () => {
    const { data: timeline, meta, asked } = await start(10, 90);
    const { start: from, end } = timeline.extent;
    await look(timeline, { start: from, end });
    const closer = { start: from + (end - from) * 0.4, end: from + (end - from) * 0.5 };
    await look(timeline, closer);
    const before = asked.filter((route) => route === "bins").length;
    for (const by of [0.001, 0.002, 0.003]) {
      const shift = (meta.end_ps - meta.start_ps) * by;
      await look(timeline, { start: closer.start + shift, end: closer.end + shift });
    }
    expect(asked.filter((route) => route === "bins")).toHaveLength(before);
  });

  it("says when loading fails", async () => {
    const { data: timeline, meta } = await start(10);
    await close?.();
    timeline.look({ start: meta.start_ps, end: meta.end_ps }, WIDTH);
    await expect.poll(() => timeline.error.peek()?.code).toBe("network");
    expect(timeline.cover(0, { start: 0, end: 1 }, 1, new Float32Array(13))).toBeNull();
  });
});
