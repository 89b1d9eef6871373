import { describe, expect, it } from "vitest";
import { routeUrl } from "../src/api/client";
import { profilerRun, traceViewerUrl } from "../src/api/profiler";
import { formatHash, parseHash } from "../src/state/url";
import { linkedPage } from "../src/ui/DocDialog";

describe("the state in the address bar", () => {
  it.each([
    { session: "2026_01_01_00_00_00" },
    { run: "a/b=c&d#e%20 ü", session: "s", start_ms: "1.5", kernel: "void f<a=b>(&)" },
    { run: "100%", session: "+ plus" },
    {},
  ])("comes back as it went in: %o", (state) => {
    expect(parseHash(formatHash("#timeseries&p.other.k=1", state as Record<string, string>))).toEqual(state);
  });

  it("writes no second raw equals sign", () => {
    for (const part of formatHash("", { kernel: "a=b=c" }).slice(1).split("&")) {
      expect(part.split("=").length).toBeLessThanOrEqual(2);
    }
  });

  it("keeps what belongs to others and drops what is old of ours", () => {
    const hash = formatHash("#scalars&_smoothingWeight=0.5&p.gpu_doctor.gone=1&p.profile.x=2", { session: "s" });
    expect(hash).toBe("#gpu_doctor&p.gpu_doctor.session=s&_smoothingWeight=0.5&p.profile.x=2");
  });

  it("reads what it can of a damaged hash", () => {
    expect(parseHash("#gpu_doctor&p.gpu_doctor.run=%E0%A4%A&&=&p.gpu_doctor.session=s")).toEqual({
      run: "%E0%A4%A",
      session: "s",
    });
    expect(parseHash("")).toEqual({});
  });
});

describe("addresses", () => {
  const base = "https://host.example/tb/data/plugin/gpu_doctor/";

  it("stay below a path prefix", () => {
    expect(routeUrl("timeline/meta", { run: "a b", session: "s&t" }, base).href).toBe(
      "https://host.example/tb/data/plugin/gpu_doctor/timeline/meta?run=a+b&session=s%26t",
    );
  });

  it("open the stock trace viewer at a range, with the data's address inside", () => {
    const profile = { run: "train", session: "2026" };
    const url = new URL(traceViewerUrl(profile, "worker0", 1.5, 2.25, base));
    expect(url.pathname).toBe("/tb/data/plugin/profile/trace_viewer_index.html");
    expect(url.searchParams.get("view_start")).toBe("1.5");
    expect(url.searchParams.get("view_end")).toBe("2.25");
    const data = new URL(url.searchParams.get("trace_data_url")!, url.origin);
    expect(data.pathname).toBe("/tb/data/plugin/profile/data");
    expect(Object.fromEntries(data.searchParams)).toEqual({
      run: "train/2026",
      tag: "trace_viewer@",
      host: "worker0",
      hosts: "worker0",
    });
    expect(profilerRun({ run: "", session: "2026" })).toBe("2026");
  });

  it("tell links between documentation pages from links out", () => {
    expect(linkedPage("launch_bound.md", "findings/input_bound")).toBe("findings/launch_bound");
    expect(linkedPage("../guide.md#top", "findings/input_bound")).toBe("guide");
    expect(linkedPage("https://example.org/", "findings/x")).toBeNull();
    expect(linkedPage("//example.org/", "findings/x")).toBeNull();
    expect(linkedPage("javascript:alert(1)", "findings/x")).toBeNull();
    expect(linkedPage("#part", "findings/x")).toBeNull();
  });
});
