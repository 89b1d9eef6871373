import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/**
 * Leaves the keys out of the Spanish texts of the built module: they are those of the English ones, in their order.
 * Several KB of the module are nothing else. Sources, types and tests know whole catalogues only.
 */

/** The one object of a catalogue's file, which holds texts only. */
export function readTexts(source, file) {
  const found = /export const (\w+)(?::\s*Texts<typeof en>)? = (\{[\s\S]*\})(?: as const)?;\s*$/.exec(source);
  if (!found) throw new Error(`${file}: not a catalogue of texts`);
  return { name: found[1], texts: new Function(`return ${found[2]}`)() };
}

/** The Spanish texts in the order of the English ones. */
export function keyless(spanish, english, file) {
  const { name, texts } = readTexts(spanish, file);
  const { texts: keys } = readTexts(english, file);
  const values = Object.keys(keys).map((key) => {
    if (typeof texts[key] !== "string") throw new Error(`${file}: no text for ${key}`);
    return texts[key];
  });
  if (values.length !== Object.keys(texts).length) throw new Error(`${file}: more texts than in English`);
  return [
    `import { ${name} as en } from "../en/${basename(file, ".ts")}";`,
    `import { zip } from "../zip";`,
    `export const ${name} = zip(en, ${JSON.stringify(values)});`,
  ].join("\n");
}

export function keylessSpanish() {
  return {
    name: "keyless-spanish",
    apply: "build",
    enforce: "pre",
    transform(code, id) {
      const [file] = id.split("?");
      if (!/[\\/]i18n[\\/]es[\\/]\w+\.ts$/.test(file) || basename(file) === "index.ts") return null;
      const english = join(dirname(file), "..", "en", basename(file));
      return { code: keyless(code, readFileSync(english, "utf8"), file), map: null };
    },
  };
}
