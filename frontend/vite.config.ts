import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { keylessSpanish } from "./scripts/keyless.mjs";
import { bundledNotices } from "./scripts/notices.mjs";
import { versionedModules } from "./scripts/versions.mjs";

const outDir = process.env.BUNDLE_OUT_DIR ?? fileURLToPath(new URL("../tb_gpu_doctor/plugin/static", import.meta.url));

// What is built: the tab, index.js that TensorBoard imports and a module a view beside it; or, with BUNDLE=report, the
// same as one module, which a report of one file holds. Names stay the same, the server's ETag tells versions apart.
const report = process.env.BUNDLE === "report";

export default defineConfig({
  plugins: [keylessSpanish(), versionedModules(), bundledNotices()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  // Views are fetched from beside index.js, wherever TensorBoard serves it.
  base: "./",
  build: {
    outDir,
    emptyOutDir: false,
    target: "es2022",
    assetsInlineLimit: Number.MAX_SAFE_INTEGER,
    cssCodeSplit: false,
    sourcemap: false,
    reportCompressedSize: true,
    modulePreload: false,
    // Not library mode: that keeps the whitespace.
    rollupOptions: {
      input: fileURLToPath(new URL("src/index.tsx", import.meta.url)),
      // Views import what they share with the page from index.js itself.
      preserveEntrySignatures: report ? "strict" : "allow-extension",
      output: {
        format: "es",
        entryFileNames: report ? "report.js" : "index.js",
        chunkFileNames: "[name].js",
        codeSplitting: !report && {
          groups: [
            // What the page itself or several views are made of is one module, so that no name depends on who shares it.
            { name: "page", test: (id) => !/[\\/]views[\\/](?!verdict[\\/]|\w+\.tsx?$)/.test(id) },
            { name: "shared", test: /[\\/]views[\\/]/, minShareCount: 2 },
          ],
        },
      },
    },
  },
  // No test is about its own speed: a busy machine may take its time.
  test: { include: ["test/**/*.test.ts", "test/**/*.test.tsx"], environment: "node", testTimeout: 120_000 },
});
