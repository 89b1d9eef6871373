// Fails when the committed modules are not what the sources build, or when one is too heavy.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

// What every page loads; what a view adds when it is opened; what a report of one file holds.
const LIMIT_GZIP_BYTES = 120 * 1024;
const LIMIT_VIEW_GZIP_BYTES = 24 * 1024;
const LIMIT_REPORT_GZIP_BYTES = 200 * 1024;
const frontend = fileURLToPath(new URL("..", import.meta.url));
const committed = join(frontend, "../tb_gpu_doctor/plugin/static");
const temporary = mkdtempSync(join(tmpdir(), "gpu-doctor-bundle-"));

const limitOf = (name) =>
  ({ "index.js": LIMIT_GZIP_BYTES, "report.js": LIMIT_REPORT_GZIP_BYTES })[name] ?? LIMIT_VIEW_GZIP_BYTES;

function failureOf(name, old, fresh) {
  if (!old.includes(name)) return `there is no committed ${name}`;
  if (!fresh.includes(name)) return `${name} is no longer built`;
  const built = readFileSync(join(temporary, name));
  if (!built.equals(readFileSync(join(committed, name)))) return `the committed ${name} is stale`;
  const zipped = gzipSync(built, { level: 9 }).length;
  if (zipped > limitOf(name)) return `${name} is too heavy: ${zipped} bytes gzipped, at most ${limitOf(name)}`;
  console.log(`${name} is up to date: ${built.length} bytes, ${zipped} gzipped`);
  return null;
}

const failures = [];
try {
  execFileSync(process.execPath, [join(frontend, "scripts/build.mjs"), "--logLevel", "error"], {
    cwd: frontend,
    env: { ...process.env, BUNDLE_OUT_DIR: temporary },
    stdio: "inherit",
  });
  const [old, fresh] = [readdirSync(committed), readdirSync(temporary)];
  for (const name of [...new Set([...old, ...fresh])].sort()) failures.push(failureOf(name, old, fresh) ?? []);
} finally {
  rmSync(temporary, { recursive: true, force: true });
}
for (const failure of failures.flat()) console.error(`check-bundle: ${failure}; \`make bundle\` builds it anew`);
process.exitCode = failures.flat().length ? 1 : 0;
