/**
 * All style sheets as one. Each lies beside what it dresses and is found here by its folder; a later one wins over an
 * earlier one, so the order is that of the imports: what everything is made of, then parts, then views. What a printed
 * page or a report of one file leaves out comes last.
 */

const sheets: Record<string, string>[] = [
  import.meta.glob("./base.css", { query: "?inline", import: "default", eager: true }),
  import.meta.glob("./parts.css", { query: "?inline", import: "default", eager: true }),
  import.meta.glob("../ui/*.css", { query: "?inline", import: "default", eager: true }),
  import.meta.glob("../charts/*.css", { query: "?inline", import: "default", eager: true }),
  import.meta.glob("../shell/*.css", { query: "?inline", import: "default", eager: true }),
  import.meta.glob("../views/*/*.css", { query: "?inline", import: "default", eager: true }),
  import.meta.glob(["./print.css", "./report.css"], { query: "?inline", import: "default", eager: true }),
];

export const styles = sheets.flatMap((each) => Object.values(each)).join("");
