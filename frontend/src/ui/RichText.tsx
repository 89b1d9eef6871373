import { useState } from "preact/hooks";
import { t } from "../i18n";
import { copyText } from "./copy";
import { Icon } from "./Icon";

export type TextPart = { kind: "text" | "code" | "block"; text: string };

/** Splits a text into plain text, `code` and fenced blocks. Nothing else of Markdown is known. */
export function parseRichText(source: string): TextPart[] {
  const parts: TextPart[] = [];
  const pattern = /```[^\n`]*\n([\s\S]*?)(?:\n```|$)|`([^`\n]+)`/g;
  let from = 0;
  for (const match of source.matchAll(pattern)) {
    if (match.index > from) parts.push({ kind: "text", text: source.slice(from, match.index) });
    if (match[1] !== undefined) parts.push({ kind: "block", text: match[1] });
    else parts.push({ kind: "code", text: match[2] });
    from = match.index + match[0].length;
  }
  if (from < source.length) parts.push({ kind: "text", text: source.slice(from) });
  return parts.map((part) => (part.kind === "text" ? { ...part, text: part.text.replace(/\n{2,}/g, "\n") } : part));
}

function CodeBlock({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    setCopied(await copyText(text));
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <div class="code">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region needs the keyboard */}
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
      <button type="button" class="quiet" onClick={copy}>
        <Icon name="copy" />
        <span aria-live="polite">{copied ? t("copied") : t("copy")}</span>
      </button>
    </div>
  );
}

/** Text from the catalogues of the server: shown as text, code set apart. */
export function RichText({ text }: { text: string }) {
  return (
    <>
      {parseRichText(text).map((part, i) => {
        // The parts of one text never change places.
        const key = `${i}`;
        if (part.kind === "block") return <CodeBlock key={key} text={part.text} />;
        if (part.kind === "code") return <code key={key}>{part.text}</code>;
        return (
          <span key={key} class="prose">
            {part.text}
          </span>
        );
      })}
    </>
  );
}
