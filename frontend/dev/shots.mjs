// Screenshots, axe and console of the tab: `node dev/shots.mjs BASE_URL OUT_DIR [name ...]`.
// BASE_URL is the page that holds the tab (the dev server, or TensorBoard itself). A name
// `run:session` is a real profile.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium, firefox } from "playwright-core";

const [base, out, ...wanted] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const S = "p.gpu_doctor.session=2026_01_01_00_00_00";
const hash = (run, more = "") => `#gpu_doctor&p.gpu_doctor.run=${run}&${S}${more}`;

const SHOTS = {
  input: { path: hash("input_bound"), width: 1400, height: 2300 },
  dark: { path: hash("slow_gpu"), width: 1400, height: 2300, dark: true },
  narrow: { path: hash("slow_gpu", "&p.gpu_doctor.lang=es"), width: 400, height: 3600 },
  wide: { path: hash("many_gpus"), width: 3840, height: 2160 },
  healthy: { path: hash("healthy"), width: 1400, height: 1900 },
  hostile: { path: hash("hostile"), width: 1400, height: 2400 },
  broken: { path: hash("broken"), width: 1400, height: 700 },
  slow: { path: hash("slow"), width: 1400, height: 700, wait: 900 },
  missing: { path: hash("gone"), width: 1400, height: 900 },
  nogpu: { path: hash("no_gpu"), width: 1400, height: 1200, dark: true },
  zoomed: {
    path: hash("slow_gpu", "&p.gpu_doctor.start_ms=100&p.gpu_doctor.end_ms=101.2"),
    width: 1400,
    height: 2300,
    scroll: "#timeline",
  },
  doc: {
    path: hash("input_bound"),
    width: 1400,
    height: 900,
    act: (frame) => frame.getByRole("button", { name: "Learn more" }).first().click(),
  },
  evidence: {
    path: hash("input_bound"),
    width: 1400,
    height: 900,
    act: (frame) => frame.locator(".evidence .action").first().click(),
  },
  picker: {
    path: hash("input_bound"),
    width: 1400,
    height: 700,
    act: (frame) => frame.getByRole("combobox", { name: /session/i }).click(),
  },
};

for (const name of wanted.filter((each) => each.includes(":"))) {
  const [run, session] = name.split(":");
  const path = `#gpu_doctor&p.gpu_doctor.run=${encodeURIComponent(run)}&p.gpu_doctor.session=${session}`;
  SHOTS[name] = { path, width: 1400, height: 2600, wait: 6000 };
}

const kind = process.env.BROWSER === "firefox" ? firefox : chromium;
const browser = await kind.launch({
  executablePath: process.env.BROWSER === "firefox" ? "/usr/bin/firefox-esr" : "/usr/bin/chromium",
  args:
    process.env.BROWSER === "firefox"
      ? []
      : [
          "--no-sandbox",
          "--disable-gpu",
          "--disable-quic",
          "--disable-background-networking",
          "--disable-component-update",
          "--disable-sync",
        ],
});
for (const [name, shot] of Object.entries(SHOTS)) {
  if (wanted.length && !wanted.includes(name)) continue;
  const page = await browser.newPage({ viewport: { width: shot.width, height: shot.height } });
  page.on("console", (message) => message.type() === "error" && console.log(`${name}: console: ${message.text()}`));
  page.on("pageerror", (error) => console.log(`${name}: error: ${error.message}`));
  await page.goto(`${base}${shot.dark ? "dark" : ""}${shot.path}`);
  await page.waitForTimeout(shot.wait ?? 1500);
  const frame = page.frames().find((each) => each.url().includes("plugin_entry.html?name=gpu_doctor"));
  if (shot.scroll) await frame.locator(shot.scroll).scrollIntoViewIfNeeded();
  if (shot.act) {
    await shot.act(frame);
    await page.waitForTimeout(900);
  }
  await page.screenshot({ path: join(out, `${name}.png`) });
  await frame.evaluate(axe);
  const { violations } = await frame.evaluate(() => window.axe.run());
  for (const violation of violations) {
    console.log(
      `${name}: axe: ${violation.id}: ${violation.nodes
        .map((node) => node.html.slice(0, 160))
        .slice(0, 3)
        .join(" | ")}`,
    );
  }
  console.log(
    `${name}: ${violations.length} axe violations; scroll width ${await frame.evaluate(() => document.documentElement.scrollWidth)} of ${shot.width}`,
  );
  await page.close();
}
await browser.close();
