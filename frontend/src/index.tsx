import { render as renderInto } from "preact";
import { answerFrom } from "./api/client";
import { snapshotResponse } from "./api/snapshot/answers";
import { isSnapshot, loadSnapshot } from "./api/snapshot/file";
import { App } from "./app";
import { isLang, lang } from "./i18n";
import { dark, watchHost } from "./state/host";
import { startStore } from "./state/store";
import { styles } from "./styles";

/** Called by TensorBoard once the module is loaded; the document is ours alone. */
export function render(): void {
  const sheet = document.createElement("style");
  sheet.textContent = styles;
  document.head.append(sheet);
  const viewport = document.createElement("meta");
  viewport.name = "viewport";
  viewport.content = "width=device-width, initial-scale=1";
  document.head.append(viewport);
  watchHost();
  startStore();
  document.documentElement.lang = lang.peek();
  document.documentElement.dataset.theme = dark.peek() ? "dark" : "light";
  const root = document.createElement("div");
  document.body.append(root);
  renderInto(<App />, root);
}

/** The page is a report of one file: nobody calls us, and it may say which language it opens in. */
async function open(): Promise<void> {
  const { header } = await loadSnapshot();
  if (isLang(header.lang)) lang.value = header.lang;
  document.documentElement.dataset.report = header.left_out.join(" ");
  render();
}

if (isSnapshot()) {
  answerFrom(snapshotResponse);
  open().catch((error: unknown) => {
    document.body.textContent = `GPU Doctor: ${error instanceof Error ? error.message : String(error)}`;
  });
}
