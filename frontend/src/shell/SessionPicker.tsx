import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import type { ProfileId, SessionInfo } from "../api/types";
import { formatDate, fullText, shorten } from "../format";
import { t, tId } from "../i18n";
import { infoOf, refreshSessions, sameProfile, selected, selectProfile, sessions } from "../state/store";
import { Icon } from "../ui/Icon";

const MOST_SHOWN = 200;

/** Sessions whose label, run, hosts or format hold every word of the query. */
export function filterSessions(all: readonly SessionInfo[], query: string): SessionInfo[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((session) => {
    const text = `${session.label} ${session.run} ${session.session} ${session.hosts.join(" ")} ${session.format}`;
    const lower = text.toLowerCase();
    return words.every((word) => lower.includes(word));
  });
}

/** When a session was recorded; a snapshot of an older version knows its files' time only. */
export const recordedAt = (session: SessionInfo): number => session.recorded_unix_s ?? session.modified_unix_s;

interface SessionChoiceProps {
  label: string;
  all: readonly SessionInfo[];
  current: ProfileId | null;
  onChoose: (session: SessionInfo) => void;
}

/** A combobox over sessions: type to search, arrows and Enter to choose. */
export function SessionChoice({ label, all, current, onChoose }: SessionChoiceProps) {
  const chosen = infoOf(all, current);
  const [open, setOpen] = useState(false);
  const [query, setQuery] = useState("");
  const [active, setActive] = useState(0);
  const id = useId();
  const list = useRef<HTMLUListElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const found = useMemo(() => filterSessions(all, query), [all, query]);
  const shown = found.slice(0, MOST_SHOWN);

  // Dependencies: the option to show changes with `active`.
  useEffect(() => {
    list.current?.querySelector('[data-active="true"]')?.scrollIntoView({ block: "nearest" });
  }, [open, active]);

  const show = () => {
    if (open) return;
    void refreshSessions(); // verdicts that are known by now
    setQuery("");
    setActive(
      Math.max(
        0,
        all.findIndex((session) => sameProfile(session, current)),
      ),
    );
    setOpen(true);
  };
  const close = () => setOpen(false);
  const choose = (session: SessionInfo | undefined) => {
    if (session) onChoose(session);
    close();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in moves) {
      event.preventDefault();
      if (!open) show();
      else setActive(Math.min(Math.max(active + moves[event.key], 0), Math.max(0, shown.length - 1)));
    } else if (event.key === "Enter" && open) {
      event.preventDefault();
      choose(shown[active]);
    } else if (event.key === "Enter") {
      show();
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      close();
    }
  };

  return (
    <div class="picker">
      <label for={`${id}-input`}>{label}</label>
      <div class="picker-field">
        <input
          id={`${id}-input`}
          ref={input}
          type="text"
          role="combobox"
          autocomplete="off"
          spellcheck={false}
          aria-expanded={open}
          aria-controls={`${id}-list`}
          aria-autocomplete="list"
          aria-activedescendant={open && shown[active] ? `${id}-${active}` : undefined}
          placeholder={chosen ? shorten(chosen.label, 80) : t("session_search")}
          value={open ? query : chosen ? shorten(chosen.label, 80) : ""}
          title={chosen ? fullText(chosen.label) : undefined}
          onMouseDown={show}
          onInput={(event) => {
            // Closed, the field holds the chosen session's label: what is typed starts a search of its own.
            setQuery(open ? event.currentTarget.value : ((event as InputEvent).data ?? event.currentTarget.value));
            setOpen(true);
            setActive(0);
          }}
          onKeyDown={onKeyDown}
          onBlur={close}
        />
        <Icon name="chevron" />
      </div>
      <ul class="options" id={`${id}-list`} role="listbox" aria-label={label} hidden={!open} ref={list}>
        {open &&
          shown.map((session, i) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the keyboard acts through the combobox
            // biome-ignore lint/a11y/useFocusableInteractive: the combobox keeps the focus
            <li
              key={JSON.stringify([session.run, session.session])}
              id={`${id}-${i}`}
              role="option"
              aria-selected={sameProfile(session, current)}
              data-active={i === active}
              onMouseDown={(event) => event.preventDefault()}
              onMouseMove={() => setActive(i)}
              onClick={() => choose(session)}
            >
              <span class="option-label" title={fullText(session.label)}>
                {session.problem ? <Icon name="warning" /> : session.verdict ? <Icon name={session.verdict} /> : null}
                {shorten(session.label, 80)}
              </span>
              <span class="muted">
                {session.problem
                  ? `${t("session_unreadable")} · `
                  : session.verdict
                    ? `${tId("verdict_word", session.verdict)} · `
                    : ""}
                {formatDate(recordedAt(session))}
              </span>
            </li>
          ))}
        {open && found.length === 0 ? (
          // biome-ignore lint/a11y/useFocusableInteractive: a message, not a choice
          <li role="option" aria-selected={false} aria-disabled="true" class="muted">
            {t("session_none_found")}
          </li>
        ) : null}
        {open && found.length > shown.length ? (
          // biome-ignore lint/a11y/useFocusableInteractive: a message, not a choice
          <li role="option" aria-selected={false} aria-disabled="true" class="muted">
            {t("session_more", { n: found.length - shown.length })}
          </li>
        ) : null}
      </ul>
    </div>
  );
}

/** The session that the page is about, out of all of the logdir. */
export function SessionPicker() {
  return (
    <SessionChoice
      label={t("session")}
      all={sessions.value.data?.sessions ?? []}
      current={selected.value}
      onChoose={selectProfile}
    />
  );
}
