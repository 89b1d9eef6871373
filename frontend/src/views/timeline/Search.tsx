import { useEffect, useState } from "preact/hooks";
import { fetchFound, type Hit } from "../../api/timelineRange";
import type { ProfileId, TimelineMeta } from "../../api/types";
import type { Range } from "../../charts/viewport";
import { formatInt } from "../../format";
import { plural, t } from "../../i18n";
import { extent } from "../../state/timelineView";
import { findQuery, type Jump, jumpToGap, jumpToHit } from "./state";

const MOST_DRAWN = 1000;
const REST_MS = 250;

/** What the search finds in the whole recording (how many) and in what is shown (which). */
export function useHits(profile: ProfileId, range: Range | null): { total: number | null; hits: Hit[] } {
  const query = findQuery.value.trim();
  const [total, setTotal] = useState<{ query: string; count: number } | null>(null);
  const [hits, setHits] = useState<Hit[]>([]);
  useEffect(() => {
    if (!query) return;
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      const all = extent.peek();
      if (!all) return;
      try {
        const answer = await fetchFound(profile, query, all.start, all.end, 0, false, { signal: controller.signal });
        setTotal({ query, count: answer.matching });
      } catch {
        setTotal(null);
      }
    }, REST_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [profile, query]);
  useEffect(() => {
    if (!query || !range) {
      setHits([]);
      return;
    }
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const options = { signal: controller.signal };
        const answer = await fetchFound(profile, query, range.start, range.end, MOST_DRAWN, false, options);
        setHits(answer.truncated ? [] : answer.hits);
      } catch {
        // The number of hits still stands.
      }
    }, REST_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [profile, query, range?.start, range?.end]);
  return { total: query && total?.query === query ? total.count : null, hits: query ? hits : [] };
}

interface FinderProps {
  profile: ProfileId;
  meta: TimelineMeta;
  total: number | null;
  say: (text: string) => void;
}

/** Finding kernels by name, and going from gap to gap. */
export function Finder({ profile, meta, total, say }: FinderProps) {
  const tell = (jump: Promise<Jump>, none: string) =>
    void jump.then((result) => say(result === "none" ? none : result === "failed" ? t("error_network") : ""));
  const hit = (back: boolean) => tell(jumpToHit(profile, meta, back), t("timeline_no_hit"));
  const gap = (back: boolean) => tell(jumpToGap(profile, meta, back), t("timeline_no_gap"));
  const searching = findQuery.value.trim() !== "";
  return (
    <div class="toolbar">
      <label class="tool">
        {t("timeline_find")}
        <input
          type="search"
          spellcheck={false}
          value={findQuery.value}
          onInput={(event) => {
            findQuery.value = event.currentTarget.value;
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && searching) hit(event.shiftKey);
          }}
        />
      </label>
      {searching ? (
        <span class="buttons">
          <button type="button" onClick={() => hit(true)} aria-label={t("timeline_find_previous")}>
            ‹
          </button>
          <button type="button" onClick={() => hit(false)} aria-label={t("timeline_find_next")}>
            ›
          </button>
        </span>
      ) : null}
      <span class="muted" role="status">
        {searching && total !== null ? plural("timeline_hits", total, { n: formatInt(total) }) : ""}
      </span>
      <span class="buttons jump" role="group" aria-label={t("timeline_gaps")}>
        <button type="button" onClick={() => gap(true)} title="P">
          ‹ {t("timeline_previous_gap")}
        </button>
        <button type="button" onClick={() => gap(false)} title="N">
          {t("timeline_next_gap")} ›
        </button>
      </span>
    </div>
  );
}
