// Builds the tab (index.js and a module a view) and the one module that a report of one file holds. Modules that are no
// longer built are removed.
import { execFileSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const frontend = fileURLToPath(new URL("..", import.meta.url));
const outDir = process.env.BUNDLE_OUT_DIR ?? join(frontend, "../tb_gpu_doctor/plugin/static");

for (const name of readdirSync(outDir)) if (name.endsWith(".js")) rmSync(join(outDir, name));
for (const bundle of ["report", "tab"])
  execFileSync(process.execPath, [join(frontend, "node_modules/vite/bin/vite.js"), "build", ...process.argv.slice(2)], {
    cwd: frontend,
    env: { ...process.env, BUNDLE: bundle, BUNDLE_OUT_DIR: outDir },
    stdio: "inherit",
  });
