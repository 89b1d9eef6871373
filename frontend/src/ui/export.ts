/** Files that the browser saves: tables as CSV, pictures as PNG. Nothing is sent anywhere. */

export type Cell = string | number | boolean | null | undefined;

/** A text that a spreadsheet would run as a formula gets an apostrophe in front: names come from files of others. */
const harmless = (text: string): string => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);

function csvCell(value: Cell): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = harmless(String(value));
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A table as RFC 4180 has it; numbers with a point, whatever the language. */
export function toCsv(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [head, ...rows].map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");
}

/** A name that every file system takes. */
export function fileName(parts: readonly (string | null | undefined)[], extension: string): string {
  const words = parts
    .filter((part): part is string => !!part)
    .map((part) =>
      part
        .normalize("NFKD")
        .replace(/[^\w.-]+/g, "_")
        .replace(/^[_.]+|_+$/g, "")
        .slice(0, 60),
    )
    .filter(Boolean);
  return `${words.join("-").slice(0, 150) || "gpu_doctor"}.${extension}`;
}

export function saveBlob(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  // The browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(address), 30_000);
}

export function saveCsv(name: string, head: readonly string[], rows: readonly (readonly Cell[])[]): void {
  // The mark at the start tells spreadsheets that it is UTF-8.
  saveBlob(new Blob(["\ufeff", toCsv(head, rows)], { type: "text/csv;charset=utf-8" }), name);
}
