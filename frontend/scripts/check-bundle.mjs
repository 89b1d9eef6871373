// Fails when the committed bundle is not what the sources build, or when it is too heavy.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const LIMIT_GZIP_BYTES = 120 * 1024;
const frontend = fileURLToPath(new URL("..", import.meta.url));
const committed = join(frontend, "../tb_gpu_doctor/plugin/static/index.js");
const temporary = mkdtempSync(join(tmpdir(), "gpu-doctor-bundle-"));

let failure = "";
try {
  execFileSync(process.execPath, [join(frontend, "node_modules/vite/bin/vite.js"), "build", "--logLevel", "error"], {
    cwd: frontend,
    env: { ...process.env, BUNDLE_OUT_DIR: temporary },
    stdio: "inherit",
  });
  const fresh = readFileSync(join(temporary, "index.js"));
  const zipped = gzipSync(fresh, { level: 9 }).length;
  let old = Buffer.alloc(0);
  try {
    old = readFileSync(committed);
  } catch {
    failure = "there is no committed bundle";
  }
  if (
    !failure &&
    !readFileSync(join(temporary, "licenses.txt")).equals(readFileSync(join(committed, "../licenses.txt")))
  )
    failure = "the committed licenses.txt is stale: run `npm run build` and commit it";
  if (!failure && !fresh.equals(old)) failure = "the committed bundle is stale: run `npm run build` and commit it";
  if (!failure && zipped > LIMIT_GZIP_BYTES) failure = `the bundle is too heavy: ${zipped} bytes gzipped`;
  if (!failure) console.log(`index.js is up to date: ${fresh.length} bytes, ${zipped} gzipped`);
} finally {
  rmSync(temporary, { recursive: true, force: true });
}
if (failure) {
  console.error(`check-bundle: ${failure}`);
  process.exit(1);
}
