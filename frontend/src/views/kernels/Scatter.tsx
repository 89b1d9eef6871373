import { useMemo } from "preact/hooks";
import type { KernelRow } from "../../api/kernels";
import { niceStep } from "../../charts/axis";
import { categoryFill } from "../../charts/canvas";
import { FAMILIES, familyCategory } from "../../charts/families";
import { type Mark, Plot, type Scene } from "../../charts/Plot";
import { paintOf } from "../../charts/palette";
import { formatDuration, formatInt, formatMeasured, formatPercent, shorten } from "../../format";
import { lang, t, tId } from "../../i18n";
import { Legend } from "../../ui/Swatch";

interface DotMark extends Mark {
  row: KernelRow;
}

const HEIGHT = 360;
const LEFT = 52;
const BOTTOM = 40;
const TOP = 38;
const RIGHT = 14;
const LARGEST = 34;
const SMALLEST = 2.5;
const MOST_DOTS = 2000;

/** Whole powers of ten around [low, high], in ms. */
export function decades(low: number, high: number): [number, number] {
  const from = Math.floor(Math.log10(Math.max(low, 1e-9)) + 1e-9);
  const to = Math.ceil(Math.log10(Math.max(high, 1e-9)) - 1e-9);
  return [from, to > from ? to : from + 1];
}

/** Radius of a dot whose area is its share, the largest share filling the largest dot. */
export const radiusOf = (share: number, most: number, largest = LARGEST): number =>
  most > 0 ? Math.max(SMALLEST, largest * Math.sqrt(Math.max(share, 0) / most)) : SMALLEST;

/** A round dot for solid families, a square for "/" and a diamond for the others: told apart without colour. */
function shape(context: CanvasRenderingContext2D, texture: string, x: number, y: number, radius: number): void {
  context.beginPath();
  if (texture === "solid") context.arc(x, y, radius, 0, 2 * Math.PI);
  else {
    // The same area as the circle's.
    const half = (radius * Math.sqrt(Math.PI)) / 2;
    if (texture === "forward") context.rect(x - half, y - half, 2 * half, 2 * half);
    else {
      const reach = half * Math.SQRT2;
      context.moveTo(x, y - reach);
      context.lineTo(x + reach, y);
      context.lineTo(x, y + reach);
      context.lineTo(x - reach, y);
      context.closePath();
    }
  }
}

const describe = (row: KernelRow): string =>
  [
    shorten(row.name, 120),
    `${t("kernel_total")}: ${formatMeasured(row.total_ms)} (${formatPercent(row.share)}) · ${t("kernel_calls")}: ${formatInt(row.calls)}`,
    `${t("occupancy")}: ${formatPercent(row.occupancy)}${row.limiter ? ` · ${t("limited_by", { what: tId("limiter", row.limiter) })}` : ""}`,
    tId("category", familyCategory(row.family)),
  ].join("\n");

function draw({ context, width, height, theme }: Scene, rows: readonly KernelRow[], chosen: number | null): DotMark[] {
  const bottom = height - BOTTOM;
  const right = width - RIGHT;
  const [from, to] = decades(
    Math.min(...rows.map(({ total_ms }) => total_ms)),
    Math.max(...rows.map(({ total_ms }) => total_ms)),
  );
  const toX = (ms: number) => LEFT + ((Math.log10(Math.max(ms, 1e-9)) - from) / (to - from)) * (right - LEFT);
  const toY = (share: number) => bottom - share * (bottom - TOP);
  context.strokeStyle = theme.line;
  context.fillStyle = theme.muted;
  context.lineWidth = 1;
  context.beginPath();
  context.textAlign = "end";
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const y = Math.round(toY(share)) + 0.5;
    context.moveTo(LEFT, y);
    context.lineTo(right, y);
    context.fillText(formatPercent(share), LEFT - 6, y);
  }
  context.textAlign = "center";
  const each = Math.max(1, niceStep(to - from, Math.max(2, (right - LEFT) / 80)));
  for (let power = from; power <= to; power += each) {
    const x = Math.round(LEFT + ((power - from) / (to - from)) * (right - LEFT)) + 0.5;
    context.moveTo(x, TOP);
    context.lineTo(x, bottom);
    context.fillText(formatDuration(10 ** power), Math.min(Math.max(x, LEFT + 16), right - 8), bottom + 14);
  }
  context.stroke();
  context.fillText(t("kernel_total"), (LEFT + right) / 2, height - 9);
  context.textAlign = "start";
  const most = Math.max(...rows.map(({ share }) => share));
  const marks: DotMark[] = [];
  // The largest first, so that small ones lie on top of them.
  for (const row of [...rows].sort((a, b) => b.share - a.share)) {
    const [x, y] = [toX(row.total_ms), toY(row.occupancy ?? 0)];
    const radius = radiusOf(row.share, most, Math.min(LARGEST, width / 20));
    const category = familyCategory(row.family);
    shape(context, paintOf(category, theme.dark).texture, x, y, radius);
    context.globalAlpha = 0.72;
    context.fillStyle = categoryFill(context, category, theme);
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = row.id === chosen ? theme.text : theme.surface;
    context.lineWidth = row.id === chosen ? 3 : 1;
    context.stroke();
    const size = 2 * Math.max(radius, 5);
    marks.push({ x: x - size / 2, y: y - size / 2, width: size, height: size, text: describe(row), row });
  }
  return marks;
}

interface ScatterProps {
  rows: readonly KernelRow[];
  chosen: KernelRow | null;
  choose: (row: KernelRow) => void;
}

/** Time against occupancy: what is large, low and to the right is worth a look. */
export function Scatter({ rows, chosen, choose }: ScatterProps) {
  const known = useMemo(
    () => rows.filter(({ occupancy, total_ms }) => occupancy !== null && total_ms > 0).slice(0, MOST_DOTS),
    [rows],
  );
  if (!known.length) return <p class="state">{t("occupancy_unknown")}</p>;
  const families = FAMILIES.filter((family) => known.some((row) => row.family === family)).map(familyCategory);
  // Collectives are meant to leave the multiprocessors to others.
  const working = known.filter(({ family }) => family !== "communication");
  const half = working.filter(({ occupancy }) => (occupancy ?? 1) < 0.5);
  const timeOf = (some: readonly KernelRow[]) => some.reduce((sum, { total_ms }) => sum + total_ms, 0);
  const summary = t("scatter_summary", {
    n: formatInt(known.length),
    low: formatInt(half.length),
    share: formatPercent(working.length ? timeOf(half) / timeOf(working) : 0),
  });
  return (
    <>
      <Plot<DotMark>
        name="kernel-scatter"
        title={t("scatter_title")}
        summary={summary}
        height={HEIGHT}
        depends={[known, chosen?.id, lang.value]}
        draw={(scene) => draw(scene, known, chosen?.id ?? null)}
        onChoose={({ row }) => choose(row)}
        categories={families}
        legend={<Legend categories={families} note={t("scatter_note")} />}
      />
      <p class="sentence">{summary}</p>
    </>
  );
}
