// A stand-in for TensorBoard and our backend: `node dev/server.mjs [port] [--prefix=/tb] [--empty] [--no-profiler]`.
// Serves the built bundle in an iframe with TensorBoard's content security policy.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import * as data from "./synthetic.mjs";

const flags = process.argv.filter((arg) => arg.startsWith("--"));
const port = Number(process.argv.slice(2).find((arg) => !arg.startsWith("--")) ?? 6111);
const prefix = flags.find((flag) => flag.startsWith("--prefix="))?.slice(9) ?? "";
const empty = flags.includes("--empty");
const profiler = !flags.includes("--no-profiler");
const bundle = fileURLToPath(new URL("../../tb_gpu_doctor/plugin/static/index.js", import.meta.url));

const SCRIPT = 'import("./index.js").then((m) => void m.render());';
const CSP = `default-src 'self';font-src 'self' data:;frame-ancestors *;img-src 'self' data: blob:;object-src 'none';style-src 'self' data: 'unsafe-inline';connect-src 'self';script-src 'self' 'unsafe-eval' 'sha256-${createHash("sha256").update(SCRIPT).digest("base64")}'`;
const ENTRY = `\n<!DOCTYPE html>\n<head><base href="plugin/gpu_doctor/" /></head>\n<body><script type="module">${SCRIPT}</script></body>\n`;
const HOST = (dark) =>
  `<!DOCTYPE html><title>host</title><body class="${dark ? "dark-mode" : ""}" style="margin:0"><tb-webapp></tb-webapp><iframe title="tab" style="border:0;width:100vw;height:100vh" src="${prefix}/data/plugin_entry.html?name=gpu_doctor"></iframe></body>`;

const polls = new Map();
const SESSION = "2026_01_01_00_00_00";
const FAILING = ["broken", "slow"];

function sessions() {
  const found = [...data.NAMES, ...FAILING].map((run, i) => ({
    run,
    session: SESSION,
    label: `${run} · ${SESSION}`,
    hosts: ["worker0"],
    format: "xplane",
    size_bytes: 1234567,
    modified_unix_s: 1_760_000_000 - i * 5000,
    problem: run === "broken" ? "Only *.xplane.riegeli files, which cannot be read." : null,
  }));
  return {
    scanning: false,
    sessions: empty ? [] : found,
    searched: ["plugins/profile/*/*.xplane.pb", "**/plugins/profile/*/*.xplane.pb"],
    logdir: "demo_logs",
    problems: empty ? [] : [{ path: "demo_logs/x/plugins/profile/1/bad.xplane.pb", message: "The file is cut off." }],
  };
}

function answer(route, query) {
  const lang = query.get("lang") ?? "en";
  if (route === "sessions") return sessions();
  if (route === "doc")
    return {
      html: `<h1>${query.get("page")}</h1><p>How it is measured.</p><p><a href="launch_bound.md">Launch bound</a> <a href="https://example.org/">out</a></p><pre><code>x = 1</code></pre>`,
    };
  const run = query.get("run");
  if (run === "broken")
    return {
      status: 422,
      body: {
        error: {
          code: "truncated",
          message: "The file is cut off: record the profile again.",
          path: "demo_logs/broken/plugins/profile/1/a.xplane.pb",
        },
      },
    };
  let name = run;
  if (run === "slow") {
    name = "input_bound";
    const n = (polls.get(route) ?? 0) + 1;
    polls.set(route, n);
    if (n < 12 && route === "diagnosis")
      return { status: 202, body: { state: "running", stage: "decoding", progress: n / 12 } };
  }
  if (!data.NAMES.includes(name))
    return {
      status: 404,
      body: { error: { code: "unknown_session", message: "There is no such session.", path: "" } },
    };
  const s = data.scenario(name);
  const number = (key) => Number(query.get(key));
  switch (route) {
    case "diagnosis":
      return data.diagnosis(s, lang);
    case "timeline/meta":
      return s.meta;
    case "timeline/bins":
      return data.bins(s, number("start_ps"), number("end_ps"), number("width"));
    case "timeline/events":
      return data.events(s, number("start_ps"), number("end_ps"), Number(query.get("limit") ?? 200000));
    case "timeline/at":
      return data.moment(s, number("lane"), number("time_ps"));
    case "kernels":
      return data.kernels(s);
    default:
      return { status: 404, body: {} };
  }
}

function stock(route) {
  if (route === "version") return "2.24.2";
  if (route === "runs") return [...data.NAMES].map((run) => `${run}/${SESSION}`);
  if (route === "hosts") return [{ hostname: "worker0" }];
  return null;
}

function send(response, status, type, body) {
  response.writeHead(status, {
    "content-type": type,
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
  });
  response.end(body);
}

createServer((request, response) => {
  const url = new URL(request.url, "http://localhost");
  const path = url.pathname.startsWith(prefix) ? url.pathname.slice(prefix.length) : "/missing";
  if (path === "/" || path === "/dark") return send(response, 200, "text/html", HOST(path === "/dark"));
  if (path === "/data/plugin_entry.html") return send(response, 200, "text/html", ENTRY);
  if (path === "/data/plugin/gpu_doctor/index.js") return send(response, 200, "text/javascript", readFileSync(bundle));
  if (path === "/data/plugins_listing") {
    const listing = { gpu_doctor: { enabled: true }, ...(profiler ? { profile: { enabled: true } } : {}) };
    return send(response, 200, "application/json", JSON.stringify(listing));
  }
  if (path.startsWith("/data/plugin/profile/")) {
    const found = profiler ? stock(path.slice(21)) : null;
    return found === null
      ? send(response, 404, "text/plain", "no")
      : send(response, 200, "application/json", JSON.stringify(found));
  }
  if (path.startsWith("/data/plugin/gpu_doctor/")) {
    const result = answer(path.slice(24), url.searchParams);
    if (Buffer.isBuffer(result)) return send(response, 200, "application/octet-stream", result);
    const wrapped = typeof result.status === "number";
    return send(
      response,
      wrapped ? result.status : 200,
      "application/json",
      JSON.stringify(wrapped ? result.body : result),
    );
  }
  if (path === "/favicon.ico") return send(response, 204, "image/x-icon", "");
  return send(response, 404, "text/plain", "no");
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}${prefix}/`));
