import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { fetchDoc } from "../api/routes";
import { lang, t } from "../i18n";
import { Remote } from "../state/remote";
import { Failed, Loading } from "./Section";

/** The documentation page that is open; null: none. */
export const openPage = signal<string | null>(null);
const page = new Remote<{ html: string }>();

/** The page that a link inside a page leads to; null for links that leave the documentation. */
export function linkedPage(href: string, from: string): string | null {
  if (/^[a-z][a-z0-9+.-]*:/i.test(href) || href.startsWith("//") || href.startsWith("#") || href === "") return null;
  const parts = href.startsWith("/") ? [] : from.split("/").slice(0, -1);
  for (const part of href.replace(/[?#].*$/, "").split("/")) {
    if (part === "..") parts.pop();
    else if (part && part !== ".") parts.push(part);
  }
  const path = parts.join("/").replace(/\.(md|html)$/, "");
  return path || null;
}

/** A page of the documentation over the tab. The server makes its HTML from bundled files and cleans it. */
export function DocDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const name = openPage.value;
  const language = lang.value;
  const { status, data, error } = page.value;
  const load = () => {
    if (name) void page.load((options) => fetchDoc(name, language, options), true);
  };

  // Dependencies: load belongs to name and language.
  useEffect(() => {
    const element = dialog.current;
    if (!element) return;
    if (name) {
      load();
      if (!element.open) element.showModal();
    } else if (element.open) {
      element.close();
    }
  }, [name, language]);

  useEffect(() => {
    const element = body.current;
    if (!element) return;
    element.innerHTML = data?.html ?? "";
    for (const link of element.querySelectorAll("a")) {
      if (!name || linkedPage(link.getAttribute("href") ?? "", name)) continue;
      link.target = "_blank";
      link.rel = "noopener";
    }
    for (const block of element.querySelectorAll("pre")) block.tabIndex = 0;
    element.scrollTop = 0;
  }, [data, name]);

  const follow = (event: MouseEvent) => {
    const link = (event.target as Element | null)?.closest("a");
    const target = link && name ? linkedPage(link.getAttribute("href") ?? "", name) : null;
    if (!target) return;
    event.preventDefault();
    openPage.value = target;
  };

  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a dialog by itself
    <dialog
      ref={dialog}
      class="doc"
      aria-label={t("doc_title")}
      onClose={() => {
        openPage.value = null;
        page.clear();
      }}
      onClick={(event) => {
        if (event.target === dialog.current) dialog.current?.close();
      }}
    >
      <div class="doc-bar">
        <span>{t("doc_title")}</span>
        <button type="button" class="quiet" onClick={() => dialog.current?.close()}>
          {t("close")}
        </button>
      </div>
      {status === "loading" && !data ? <Loading label={t("loading_doc")} /> : null}
      {status === "failed" && error ? <Failed error={error} retry={load} /> : null}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: links inside are reached by the keyboard as links */}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region needs the keyboard */}
      <div class="doc-body" ref={body} onClick={follow} tabIndex={0} role="document" lang={language} />
    </dialog>
  );
}
