import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { keylessSpanish } from "./scripts/keyless.mjs";
import { bundledNotices } from "./scripts/notices.mjs";

const outDir = process.env.BUNDLE_OUT_DIR ?? fileURLToPath(new URL("../tb_gpu_doctor/plugin/static", import.meta.url));

// One self-contained module: TensorBoard imports index.js and calls render(). No chunk,
// no asset beside it, so nothing else has to be served or cached.
export default defineConfig({
  plugins: [keylessSpanish(), bundledNotices()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
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
      preserveEntrySignatures: "strict",
      output: { format: "es", entryFileNames: "index.js", codeSplitting: false },
    },
  },
  // No test is about its own speed: a busy machine may take its time.
  test: { include: ["test/**/*.test.ts", "test/**/*.test.tsx"], environment: "node", testTimeout: 120_000 },
});
