import { describe, expect, it } from "vitest";
import type { DeviceResult, Diagnosis, Evidence, Finding, SessionInfo } from "../src/api/types";
import { CAUSES, cssBackground, paintOf, WORK } from "../src/charts/palette";
import { lang } from "../src/i18n";
import { filterSessions } from "../src/shell/SessionPicker";
import { infoOf } from "../src/state/store";
import { gpuList } from "../src/ui/gpu";
import { matchHost } from "../src/ui/ProfilerLink";
import { parseRichText } from "../src/ui/RichText";
import { accountingSentence, partsOf, presentCategories, seenCategories } from "../src/views/verdict/Accounting";
import { groupEvidence } from "../src/views/verdict/evidence";
import { bestSaving, verdictSentence } from "../src/views/verdict/Summary";

lang.value = "en";

const device = (more: Partial<DeviceResult> = {}): DeviceResult => ({
  host: "a",
  id: 0,
  rank: null,
  name: null,
  wall_ms: 100,
  compute_ms: 60,
  communication_ms: 10,
  communication_wait_ms: null,
  transfer_ms: 0,
  idle_ms: 30,
  idle_by_cause_ms: { input: 25, kernel_gap: 5 },
  occupancy: null,
  ...more,
});

const finding = (more: Partial<Finding> = {}): Finding => ({
  kind: "input_bound",
  severity: "critical",
  gpus: [],
  victims: [],
  cause: null,
  share: 0.25,
  saving_ms_per_step: 5,
  title: "The GPUs wait",
  explanation: "",
  about: "run",
  cost: "lost",
  advice: [],
  check: "Record again.",
  docs: null,
  evidence: [],
  ...more,
});

const result = (more: Partial<Diagnosis> = {}): Diagnosis => ({
  schema_version: 1,
  verdict: "ok",
  language: "en",
  profile: { run: "", session: "", hosts: [], format: "xplane", window_ms: 100, recorded_ms: null, warnings: [] },
  devices: [device()],
  steps: { count: 4, source: "marked", median_ms: 25 },
  findings: [],
  ...more,
});

describe("the accounting", () => {
  it("fills the window", () => {
    const parts = partsOf(device());
    expect(parts.reduce((sum, part) => sum + part.ms, 0)).toBeCloseTo(100);
    expect(parts.map((part) => part.category)).toEqual(["compute", "communication", "input", "kernel_gap"]);
  });

  it("takes waiting out of communication where it is known", () => {
    const parts = partsOf(device({ exposed_wait_ms: 8 }));
    expect(parts.map(({ category, ms }) => [category, ms])).toEqual([
      ["compute", 60],
      ["communication", 2],
      ["communication_wait", 8],
      ["input", 25],
      ["kernel_gap", 5],
    ]);
    expect(
      partsOf(device({ exposed_wait_ms: 99 })).find(({ category }) => category === "communication"),
    ).toBeUndefined();
    expect(presentCategories([device({ exposed_wait_ms: 8 })]).slice(0, 3)).toEqual([
      "compute",
      "communication",
      "communication_wait",
    ]);
  });

  it("shows idle time without a cause as such, and causes it does not know", () => {
    const parts = partsOf(device({ idle_by_cause_ms: { brand_new: 20 } }));
    expect(parts.find((part) => part.category === "no_evidence")?.ms).toBeCloseTo(10);
    expect(presentCategories([device({ idle_by_cause_ms: { brand_new: 30 } })])).toContain("brand_new");
  });

  it("has nothing for a GPU without a window", () => {
    expect(partsOf(device({ wall_ms: null }))).toEqual([]);
    expect(accountingSentence([device({ wall_ms: 0 })])).toMatch(/No GPU/);
  });

  it("shows what can be seen, and names the rest", () => {
    const devices = [device({ idle_by_cause_ms: { input: 29.98, sync: 0.02 } })];
    expect(seenCategories(devices)).toEqual({ seen: ["compute", "communication", "input"], tiny: ["sync"] });
    // Enough on one GPU is enough.
    devices.push(device({ id: 1, idle_by_cause_ms: { sync: 30 } }));
    expect(seenCategories(devices).tiny).toEqual([]);
  });

  it("names the largest loss", () => {
    expect(accountingSentence([device()])).toBe(
      "On average the GPUs computed 60% of the window. The largest other part: idle: waiting for input, 25%.",
    );
  });
});

describe("the verdict", () => {
  it("says that a healthy run is healthy", () => {
    expect(verdictSentence(result())).toBe("No problem was found. The GPUs computed 60% of the window.");
  });

  it("names the worst of the verdict's own severity, and its cost", () => {
    const findings = [
      finding({ severity: "warning", title: "Small" }),
      finding({ title: "Big", saving_ms_per_step: 7 }),
    ];
    expect(verdictSentence(result({ verdict: "critical", findings }))).toBe(
      "1 critical problem and 1 warning. The largest: Big (7.00 ms per step). The GPUs computed 60% of the window.",
    );
  });

  it("says a share once", () => {
    const sentence = (title: string) =>
      verdictSentence(
        result({ verdict: "critical", devices: [], findings: [finding({ saving_ms_per_step: null, title })] }),
      );
    expect(sentence("GPU 1 rests")).toBe("1 critical problem: GPU 1 rests (25% of the window).");
    expect(sentence("GPU 1 rests 25% of the time")).toBe("1 critical problem: GPU 1 rests 25% of the time.");
  });

  it("does without what is unknown", () => {
    const unknown = finding({ saving_ms_per_step: null, share: null });
    expect(verdictSentence(result({ verdict: "critical", findings: [unknown], devices: [] }))).toBe(
      "1 critical problem: The GPUs wait.",
    );
  });

  it("says why nothing can be said, and where to read on", () => {
    const profile = { ...result().profile, warnings: ["The GPUs are idle, and it does not show why.", "Other."] };
    const short = finding({ kind: "short_profile", severity: "warning", about: "profile", cost: "none" });
    expect(verdictSentence(result({ verdict: "cannot_tell" }))).toMatch(/lacks/);
    expect(verdictSentence(result({ verdict: "cannot_tell", profile }))).toBe(profile.warnings[0]);
    expect(verdictSentence(result({ verdict: "cannot_tell", profile, findings: [short] }))).toBe(
      `${profile.warnings[0]} The findings below say what is missing and how to record it.`,
    );
  });
});

describe("the GPUs of a finding", () => {
  const gpus = (...ids: number[]) => ids.map((id) => ({ host: "a", id }));

  it("are named shortly", () => {
    expect(gpuList(gpus(2), 8, false)).toBe("GPU 2");
    expect(gpuList(gpus(0, 1), 8, false)).toBe("GPUs 0 and 1");
    expect(gpuList(gpus(7, 0, 2, 3, 4), 8, false)).toBe("GPUs 0, 2–4 and 7");
    expect(gpuList(gpus(0, 1), 2, false)).toBe("Both GPUs");
    expect(gpuList(gpus(0, 1, 2), 3, false)).toBe("All 3 GPUs");
    const hosts = ["a", "b", "c", "d", "e"].map((host) => ({ host, id: 0 }));
    expect(gpuList(hosts, 8, true)).toBe("a · GPU 0; b · GPU 0; c · GPU 0; d · GPU 0 and 1 more");
  });
});

describe("evidence", () => {
  const seen = (gpu: number | null, start_ms: number | null, end_ms: number | null, more: Partial<Evidence> = {}) => ({
    host: "a",
    gpu,
    start_ms,
    end_ms,
    thread: "t",
    step: 3,
    what: "waited",
    ...more,
  });

  it("of one moment on several GPUs is one", () => {
    const groups = groupEvidence([seen(1, 10, 20), seen(0, 10.1, 20.2, { thread: "u" }), seen(0, 40, 50)]);
    expect(groups).toEqual([
      { host: "a", gpus: [1, 0], startMs: 10, endMs: 20.2, thread: null, step: 3, what: "waited" },
      { host: "a", gpus: [0], startMs: 40, endMs: 50, thread: "t", step: 3, what: "waited" },
    ]);
  });

  it("stays apart where anything else differs", () => {
    const others = [{ host: "b" }, { step: 4 }, { what: "copied" }];
    for (const other of others) expect(groupEvidence([seen(0, 10, 20), seen(1, 10, 20, other)])).toHaveLength(2);
    expect(groupEvidence([seen(0, 10, 20), seen(0, 10, 20)])).toHaveLength(2);
    expect(groupEvidence([seen(null, 10, 20), seen(null, 10, 20)])).toHaveLength(2);
    expect(groupEvidence([seen(0, 10, 20), seen(1, 12, 22)])).toHaveLength(2);
    expect(groupEvidence([seen(0, null, null), seen(1, 1, 2)])).toHaveLength(2);
  });
});

describe("advice", () => {
  it("sets code apart and leaves markup as text", () => {
    expect(parseRichText("Use `x` now:\n```python\na = `1`\n```\nor <b>not</b>")).toEqual([
      { kind: "text", text: "Use " },
      { kind: "code", text: "x" },
      { kind: "text", text: " now:\n" },
      { kind: "block", text: "a = `1`" },
      { kind: "text", text: "\nor <b>not</b>" },
    ]);
  });

  it("takes a fence that never closes, and lone backticks", () => {
    expect(parseRichText("```\nx = 1")).toEqual([{ kind: "block", text: "x = 1" }]);
    expect(parseRichText("a ` b")).toEqual([{ kind: "text", text: "a ` b" }]);
    expect(parseRichText("")).toEqual([]);
  });
});

describe("the most to gain", () => {
  it("is that of one finding, since gains do not add up", () => {
    const findings = [finding({ saving_ms_per_step: 5 }), finding({ saving_ms_per_step: 8 }), finding()];
    expect(bestSaving(result({ findings }))).toEqual({ ms: 8, stepMs: 25 });
    expect(bestSaving(result())).toBeNull();
    expect(bestSaving(result({ findings, steps: { count: 0, source: "none", median_ms: null } }))).toBeNull();
  });
});

describe("choosing", () => {
  const session = (label: string): SessionInfo => ({
    run: "",
    session: label,
    label,
    hosts: ["node7"],
    format: "xplane",
    size_bytes: 1,
    modified_unix_s: 1,
    problem: null,
  });

  it("finds sessions by every word", () => {
    const all = [session("train big"), session("train small")];
    expect(filterSessions(all, "SMALL train").map((each) => each.label)).toEqual(["train small"]);
    expect(filterSessions(all, "node7")).toHaveLength(2);
    expect(filterSessions(all, " ")).toHaveLength(2);
  });

  it("knows sessions that one of them offers to read as one job", () => {
    const [a, b] = [session("s1"), session("s2")];
    a.related = { session: "s1,s2", sessions: [a, b], hosts: ["n1", "n2"], apart_s: 3 };
    expect(infoOf([a, b], { run: "", session: "s2" })).toBe(b);
    const both = infoOf([a, b], { run: "", session: "s1,s2" });
    expect(both).toMatchObject({
      session: "s1,s2",
      hosts: ["n1", "n2"],
      size_bytes: 2,
      label: "s1 + s2",
      related: null,
    });
    expect(infoOf([a, b], { run: "", session: "s2,s3" })).toBeNull();
    expect(infoOf([a, b], null)).toBeNull();
  });

  it("links to a host of the Profiler only when it is surely the same", () => {
    expect(matchHost(["a", "b"], "b")).toBe("b");
    expect(matchHost(["a"], "other")).toBe("a");
    expect(matchHost(["a", "b"], "other")).toBeNull();
    expect(matchHost([], "a")).toBeNull();
  });
});

describe("colours", () => {
  it("tell work from waiting by texture too", () => {
    for (const dark of [false, true]) {
      const seen = new Set<string>();
      for (const id of [...WORK, ...CAUSES]) {
        const paint = paintOf(id, dark);
        expect(paint.color).toMatch(/^#[0-9a-f]{6}$/);
        expect(seen.has(paint.color)).toBe(false);
        seen.add(paint.color);
        expect(paint.texture === "solid").toBe((WORK as readonly string[]).includes(id));
        expect(cssBackground(id, dark)).toContain(paint.color);
      }
    }
  });
});
