import { createHash } from "node:crypto";

/**
 * Asks for each view's module in the version that this page was built with. A page that was open while the package was
 * updated would join modules of two builds, whose names for what they share differ; the server knows its own version
 * and refuses another's.
 */
export function versionedModules() {
  return {
    name: "versioned-modules",
    apply: "build",
    enforce: "post",
    generateBundle(_options, bundle) {
      const modules = Object.values(bundle).filter(({ type }) => type === "chunk");
      const digest = createHash("sha256");
      for (const { fileName, code } of modules.sort((a, b) => (a.fileName < b.fileName ? -1 : 1)))
        digest.update(`${fileName}\n${code}`);
      const version = digest.digest("hex").slice(0, 16);
      for (const file of modules) file.code = withVersion(file.code, version);
    },
  };
}

/** Every module that is fetched later, under its version. */
export const withVersion = (code, version) =>
  code.replace(
    /\bimport\(([`"'])(\.\/\w+\.js)\1\)/g,
    (_whole, quote, path) => `import(${quote}${path}?v=${version}${quote})`,
  );
