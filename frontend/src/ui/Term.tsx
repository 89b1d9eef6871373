import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { hasMessage, type MessageKey, t } from "../i18n";

const GAP = 8;
const WIDEST = 360;

interface Place {
  left: number;
  top?: number;
  bottom?: number;
}

/** Beside an element, inside the window: under it, or above it in the lower part of the window. */
function place(element: Element): Place {
  const box = element.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const width = Math.min(WIDEST, room - 2 * GAP);
  const left = Math.max(GAP, Math.min(box.left, room - width - GAP));
  return box.bottom > window.innerHeight * 0.7
    ? { left, bottom: window.innerHeight - box.top + GAP / 2 }
    : { left, top: box.bottom + GAP / 2 };
}

/** What a hover, the focus or a tap shows about an element; Escape hides it. Put `props` on the element, `tip` beside it. */
export function useTip<E extends HTMLElement>(text: string | undefined) {
  const id = useId();
  const ref = useRef<E>(null);
  const [at, setAt] = useState<Place | null>(null);
  const shown = at !== null && !!text;
  const show = () => ref.current && text && setAt(place(ref.current));
  const hide = () => setAt(null);
  useEffect(() => {
    if (!shown) return;
    // It stands in the window, its element in the page: once that moves, they part.
    window.addEventListener("scroll", hide, true);
    return () => window.removeEventListener("scroll", hide, true);
  }, [shown]);
  return {
    props: {
      ref,
      "aria-describedby": text ? id : undefined,
      onMouseEnter: show,
      onMouseLeave: hide,
      onFocus: show,
      onBlur: hide,
    },
    onKeyDown: (event: KeyboardEvent) => {
      if (event.key === "Escape" && shown) {
        event.stopPropagation();
        hide();
      }
    },
    toggle: () => (shown ? hide() : show()),
    tip: text ? (
      <span
        role="tooltip"
        id={id}
        class={shown ? "tooltip" : "hidden"}
        style={
          at
            ? {
                left: `${at.left}px`,
                top: at.top === undefined ? undefined : `${at.top}px`,
                bottom: at.bottom === undefined ? undefined : `${at.bottom}px`,
                maxWidth: `${WIDEST}px`,
              }
            : undefined
        }
      >
        {text}
      </span>
    ) : null,
  };
}

/** The definition of a number by its name: `term_<id>`, `<id>_hint` or, for categories of time, `category_hint_<id>`. */
export function definition(id: string): string | undefined {
  const key = [`term_${id}`, `${id}_hint`, `category_hint_${id}`].find(hasMessage);
  return key === undefined ? undefined : t(key as MessageKey);
}

/** A word or a number with its definition one hover, focus or tap away. */
export function Term({ id, text, children }: { id?: string; text?: string; children: ComponentChildren }) {
  const tip = useTip<HTMLButtonElement>(text ?? (id ? definition(id) : undefined));
  if (!tip.tip) return <>{children}</>;
  return (
    <span class="term-box">
      <button type="button" class="term" {...tip.props} onKeyDown={tip.onKeyDown} onClick={tip.toggle}>
        {children}
      </button>
      {tip.tip}
    </span>
  );
}
