import { useEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { view } from "../state/store";
import type { View } from "../views/registry";

export const tabId = (id: string): string => `tab-${id}`;
export const PANEL_ID = "view";

/** The views as tabs: arrows, Home and End move between them, as the pattern of ARIA has it. */
export function Nav({ views, active }: { views: readonly View[]; active: string }) {
  const list = useRef<HTMLDivElement>(null);
  // On a narrow page the tabs scroll.
  useEffect(() => {
    const tab = list.current?.querySelector<HTMLElement>(`#${tabId(active)}`);
    if (tab && list.current)
      list.current.scrollLeft = tab.offsetLeft + tab.offsetWidth / 2 - list.current.clientWidth / 2;
  }, [active]);
  const go = (index: number) => {
    const next = views[(index + views.length) % views.length];
    view.value = next.id;
    list.current?.querySelector<HTMLElement>(`#${tabId(next.id)}`)?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const at = views.findIndex(({ id }) => id === active);
    const moves: Record<string, number> = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      Home: 0,
      End: views.length - 1,
    };
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    go(moves[event.key]);
  };
  return (
    <div class="tabs" role="tablist" aria-label={t("views_label")} ref={list} onKeyDown={onKeyDown}>
      {views.map(({ id, label }) => (
        <button
          key={id}
          type="button"
          role="tab"
          id={tabId(id)}
          class="tab"
          aria-selected={id === active}
          aria-controls={id === active ? PANEL_ID : undefined}
          tabIndex={id === active ? 0 : -1}
          onClick={() => {
            view.value = id;
          }}
        >
          {t(label)}
        </button>
      ))}
    </div>
  );
}
