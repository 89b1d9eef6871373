import { useMemo } from "preact/hooks";
import type { GapsAnswer, GapHistogram as Histogram } from "../../api/gaps";
import { Plot } from "../../charts/Plot";
import { CAUSES } from "../../charts/palette";
import { drawStack, type StackColumn, type StackMark, tallestColumn } from "../../charts/stacked";
import { formatDuration, formatInt, formatMeasured, formatPercent } from "../../format";
import { lang, plural, t, tId } from "../../i18n";
import { choiceParam } from "../../state/params";
import { Legend } from "../../ui/Swatch";

const gapBy = choiceParam("gap_by", ["time", "count"], { ofProfile: false });

const US = 1e-3;

/** The name of a bin: "1 ms–2 ms", "from 1 s". */
export function binName(edges: readonly number[], i: number): string {
  const from = formatDuration(edges[i] * US, 2);
  if (i + 1 >= edges.length) return t("gaps_bin_last", { from });
  return `${edges[i] === 0 ? "0" : from}–${formatDuration(edges[i + 1] * US, 2)}`;
}

/** Causes that occur, in the order of the legend, unknown ones last. */
export const causesOf = ({ causes }: Histogram): string[] => [
  ...CAUSES.filter((cause) => cause in causes),
  ...Object.keys(causes).filter((cause) => !(CAUSES as readonly string[]).includes(cause)),
];

/** The bins from the first to the last that hold anything. */
export function usedBins({ edges_us, causes }: Histogram): [number, number] {
  const used = edges_us.map((_, i) =>
    Object.values(causes).some(({ count, total_ms }) => count[i] > 0 || total_ms[i] > 0),
  );
  const first = used.indexOf(true);
  return first < 0 ? [0, 0] : [first, used.lastIndexOf(true) + 1];
}

/** How gaps are distributed over their lengths, by cause: by the time they take, or by how many there are. */
export function GapHistogram({ answer }: { answer: GapsAnswer }) {
  const by = gapBy.value;
  const language = lang.value;
  const { histogram } = answer;
  // Dependencies: the names of the bins speak a language.
  const { columns, causes } = useMemo(() => {
    const [first, last] = usedBins(histogram);
    const found = causesOf(histogram);
    const built: StackColumn[] = [];
    for (let i = first; i < last; i++) {
      const of = (cause: string) => {
        const { count, total_ms } = histogram.causes[cause];
        return by === "time" ? total_ms[i] : count[i];
      };
      const parts = found.map((category) => ({ category, value: of(category) ?? 0 })).filter(({ value }) => value > 0);
      const show = (value: number) => (by === "time" ? formatMeasured(value) : formatInt(value));
      const sum = parts.reduce((total, { value }) => total + value, 0);
      const lines = parts.map(({ category, value }) => `${tId("category", category)}: ${show(value)}`);
      built.push({
        label: i === 0 ? "0" : formatDuration(histogram.edges_us[i] * US, 2),
        parts,
        text: [`${binName(histogram.edges_us, i)}: ${show(sum)}`, ...lines].join("\n"),
      });
    }
    return { columns: built, causes: found };
  }, [histogram, by, language]);
  const totals = causes
    .map((cause) => ({ cause, ms: histogram.causes[cause].total_ms.reduce((sum, ms) => sum + ms, 0) }))
    .sort((a, b) => b.ms - a.ms);
  const sentence = [
    t("gaps_sentence", { count: plural("gaps", answer.total), total: formatMeasured(answer.total_ms) }),
    totals.length
      ? t("gaps_most", {
          cause: tId("category", totals[0].cause).toLowerCase(),
          share: formatPercent(totals[0].ms / Math.max(answer.total_ms, 1e-12)),
        })
      : "",
  ].join(" ");
  return (
    <>
      <p class="sentence">{sentence}</p>
      <Plot<StackMark>
        name="gaps"
        title={t(by === "time" ? "gaps_histogram_time" : "gaps_histogram_count")}
        summary={`${sentence} ${columns.map(({ text }) => text.split("\n")[0]).join("; ")}`}
        height={240}
        depends={[columns]}
        draw={(scene) => drawStack(scene, columns, tallestColumn(columns), by === "time" ? "ms" : "count")}
        legend={<Legend categories={causes} />}
        categories={causes}
        tools={
          <label class="tool">
            {t("gaps_by")}
            <select
              value={by}
              onChange={(event) => {
                gapBy.value = event.currentTarget.value === "count" ? "count" : "time";
              }}
            >
              <option value="time">{t("gaps_by_time")}</option>
              <option value="count">{t("gaps_by_count")}</option>
            </select>
          </label>
        }
      />
    </>
  );
}
