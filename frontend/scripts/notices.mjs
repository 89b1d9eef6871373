import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Puts the licences of what is bundled on top of the built module: who passes it on, as the package does and a report
 * of one file, passes them on as well. One text that several packages share stands there once, below all who hold it.
 */

/** The same as a file of its own, which the wheel names among its licences. */
const LICENSES = "licenses.txt";

/** The licence of a package, as its authors wrote it. */
export function noticeOf(folder) {
  const name = ["LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE"].find((each) => existsSync(join(folder, each)));
  if (!name) throw new Error(`${folder}: no licence to pass on`);
  return readFileSync(join(folder, name), "utf8").replaceAll("\r\n", "\n").trim();
}

/** The folder of the package that a module belongs to; null for our own. */
function packageOf(id) {
  const found = /^(.*[\\/]node_modules[\\/](?:@[^\\/]+[\\/])?[^\\/]+)[\\/]/.exec(id.replace(/^\0/, ""));
  return found && existsSync(join(found[1], "package.json")) ? found[1] : null;
}

/** What is the same in all: the text behind the line that says who holds the rights. */
function split(notice) {
  const at = /^Copyright.*$/m.exec(notice);
  return at ? [at[0], notice.slice(at.index + at[0].length).trim()] : ["", notice];
}

export function bundledNotices() {
  return {
    name: "bundled-notices",
    apply: "build",
    generateBundle(_options, bundle) {
      for (const file of Object.values(bundle)) {
        if (file.type !== "chunk") continue;
        const folders = [...new Set(Object.keys(file.modules).flatMap((id) => packageOf(id) ?? []))].sort();
        const holders = new Map();
        for (const folder of folders) {
          const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
          const [holder, text] = split(noticeOf(folder));
          holders.set(text, [...(holders.get(text) ?? []), `${name} ${version}. ${holder}`]);
        }
        const notices = [...holders].map(([text, names]) => `${names.join("\n")}\n\n${text}`).join("\n\n");
        if (notices.includes("*/")) throw new Error("a licence that cannot stand in a comment");
        if (!notices) continue;
        file.code = `/*! This module holds:\n\n${notices}\n*/\n${file.code}`;
        this.emitFile({ type: "asset", fileName: LICENSES, source: `${file.fileName} holds:\n\n${notices}\n` });
      }
    },
  };
}
