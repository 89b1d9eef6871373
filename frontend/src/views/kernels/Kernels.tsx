import { computed } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import type { KernelRow, KernelsAnswer } from "../../api/types";
import {
  formatBytes,
  formatInt,
  formatMeasured,
  formatNumber,
  formatPercent,
  fullText,
  shorten,
  UNKNOWN,
} from "../../format";
import { type MessageKey, plural, t, tId } from "../../i18n";
import { kernelsResource } from "../../state/store";
import { gpuName, manyHosts } from "../../ui/gpu";
import { useSize } from "../../ui/useSize";
import { kernelDevice, kernelFilter, kernelSort } from "./state";

type SortKey =
  | "name"
  | "device"
  | "calls"
  | "total_ms"
  | "mean_us"
  | "min_us"
  | "max_us"
  | "share"
  | "occupancy"
  | "waves"
  | "registers"
  | "shared";

interface Column {
  key: SortKey;
  label: MessageKey;
  hint?: MessageKey;
  number: boolean;
}

const COLUMNS: readonly Column[] = [
  { key: "name", label: "kernel", number: false },
  { key: "device", label: "gpu", number: false },
  { key: "total_ms", label: "kernel_total", number: true },
  { key: "share", label: "kernel_share", hint: "kernel_share_hint", number: true },
  { key: "calls", label: "kernel_calls", number: true },
  { key: "mean_us", label: "kernel_mean", number: true },
  { key: "min_us", label: "kernel_min", number: true },
  { key: "max_us", label: "kernel_max", number: true },
  { key: "occupancy", label: "occupancy", hint: "occupancy_hint", number: true },
  { key: "waves", label: "kernel_waves", hint: "kernel_waves_hint", number: true },
  { key: "registers", label: "kernel_registers", hint: "kernel_registers_hint", number: true },
  { key: "shared", label: "kernel_shared", hint: "kernel_shared_hint", number: true },
];

const sharedBytes = (row: KernelRow): number | null =>
  row.static_shared_bytes === null && row.dynamic_shared_bytes === null
    ? null
    : (row.static_shared_bytes ?? 0) + (row.dynamic_shared_bytes ?? 0);

const sortValue = (row: KernelRow, key: SortKey): string | number | null =>
  key === "shared" ? sharedBytes(row) : row[key];

/** Rows sorted by `key` or `-key` (descending); unknown values always last; stable. */
export function sortRows(rows: readonly KernelRow[], order: string): KernelRow[] {
  const descending = order.startsWith("-");
  const key = order.replace(/^-/, "") as SortKey;
  if (!COLUMNS.some((column) => column.key === key)) return [...rows];
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = sortValue(a, key);
    const y = sortValue(b, key);
    if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
    return sign * (typeof x === "string" ? compareNames(x, String(y)) : x - (y as number));
  });
}

const compareNames = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** Rows of a device whose name or op holds every word of the filter. */
export function filterRows(rows: readonly KernelRow[], filter: string, device: number | null): KernelRow[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length && device === null) return [...rows];
  return rows.filter((row) => {
    if (device !== null && row.device !== device) return false;
    const name = row.name.toLowerCase();
    const op = row.op.toLowerCase();
    return words.every((word) => name.includes(word) || op.includes(word));
  });
}

const visibleRows = computed(() => {
  const answer = kernelsResource.remote.value.data;
  return answer ? sortRows(filterRows(answer.rows, kernelFilter.value, kernelDevice.value), kernelSort.value) : [];
});

const ROW_HEIGHT = 32;
const MARGIN_ROWS = 12;
const VIEW_HEIGHT = 480;

// What the other columns need, and what a letter of a name takes, in pixels.
const OTHER_COLUMNS = 890;
const LETTER = 7.3;

/** Letters of a kernel's name for which a table of this width has room. */
export const nameLength = (width: number): number =>
  Math.min(160, Math.max(32, Math.floor((width - OTHER_COLUMNS) / LETTER)));

/** Which rows of a scrolled list to put into the page: [first, last). */
export function rowsInView(scrollTop: number, height: number, count: number): [number, number] {
  const first = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT) - MARGIN_ROWS);
  const last = Math.min(count, Math.ceil((scrollTop + height) / ROW_HEIGHT) + MARGIN_ROWS);
  return [Math.min(first, last), last];
}

function HeadCell({ column }: { column: Column }) {
  const order = kernelSort.value;
  const sorted = order === column.key ? "ascending" : order === `-${column.key}` ? "descending" : "none";
  const next =
    sorted === "none"
      ? column.number
        ? `-${column.key}`
        : column.key
      : sorted === "ascending"
        ? `-${column.key}`
        : column.key;
  return (
    <th scope="col" aria-sort={sorted} class={column.number ? "number" : undefined}>
      <button
        type="button"
        class="sort"
        title={column.hint ? t(column.hint) : undefined}
        onClick={() => {
          kernelSort.value = next;
        }}
      >
        {t(column.label)}
        <span class="arrow" aria-hidden="true">
          {sorted === "ascending" ? "▲" : sorted === "descending" ? "▼" : ""}
        </span>
      </button>
    </th>
  );
}

function Occupancy({ row }: { row: KernelRow }) {
  if (row.occupancy === null) return <>{UNKNOWN}</>;
  const limiter = row.limiter ? t("limited_by", { what: tId("limiter", row.limiter) }) : undefined;
  return (
    <span class="occupancy" title={limiter}>
      <span class="meter" aria-hidden="true">
        <span style={{ width: `${Math.min(100, row.occupancy * 100)}%` }} />
      </span>
      {formatPercent(row.occupancy)}
    </span>
  );
}

const dims = (values: number[] | null): string =>
  values ? values.map((value) => formatInt(value)).join(" × ") : UNKNOWN;

interface RowProps {
  row: KernelRow;
  index: number;
  letters: number;
  answer: KernelsAnswer;
  hosts: boolean;
}

function Row({ row, index, letters, answer, hosts }: RowProps) {
  const device = answer.devices[row.device];
  const launch = `${t("grid")}: ${dims(row.grid)} · ${t("block")}: ${dims(row.block)}`;
  return (
    <tr aria-rowindex={index + 2}>
      <th
        scope="row"
        class="kernel-name"
        title={[fullText(row.name), row.op ? fullText(row.op) : "", launch].filter(Boolean).join("\n")}
      >
        {shorten(row.name, letters)}
      </th>
      <td>{device ? gpuName(device, hosts) : UNKNOWN}</td>
      <td class="number">{formatMeasured(row.total_ms)}</td>
      <td class="number">{formatPercent(row.share)}</td>
      <td class="number">{formatInt(row.calls)}</td>
      <td class="number">{formatMeasured(row.mean_us && row.mean_us / 1000)}</td>
      <td class="number">{formatMeasured(row.min_us && row.min_us / 1000)}</td>
      <td class="number">{formatMeasured(row.max_us && row.max_us / 1000)}</td>
      <td class="number">
        <Occupancy row={row} />
      </td>
      <td class="number">{formatNumber(row.waves)}</td>
      <td class="number">{formatInt(row.registers)}</td>
      <td class="number">{formatBytes(sharedBytes(row))}</td>
    </tr>
  );
}

function Filters({ answer, hosts }: { answer: KernelsAnswer; hosts: boolean }) {
  return (
    <div class="filters">
      <label>
        {t("kernel_filter")}
        <input
          type="search"
          value={kernelFilter.value}
          spellcheck={false}
          onInput={(event) => {
            kernelFilter.value = event.currentTarget.value;
          }}
        />
      </label>
      {answer.devices.length > 1 ? (
        <label>
          {t("gpu")}
          <select
            value={kernelDevice.value === null ? "" : String(kernelDevice.value)}
            onChange={(event) => {
              const { value } = event.currentTarget;
              kernelDevice.value = value === "" ? null : Number(value);
            }}
          >
            <option value="">{t("gpus_every")}</option>
            {answer.devices.map((device, i) => (
              <option key={`${device.host}|${device.id}`} value={String(i)}>
                {gpuName(device, hosts)}
              </option>
            ))}
          </select>
        </label>
      ) : null}
      <span class="muted" role="status">
        {plural("kernels_shown", visibleRows.value.length)}
        {answer.truncated
          ? ` · ${t("kernels_truncated", { n: formatInt(answer.rows.length), total: formatInt(answer.total_rows) })}`
          : ""}
      </span>
    </div>
  );
}

const FEW_GPUS = 4;

/** Time-weighted occupancy of each GPU, in words; of many GPUs, from the lowest to the highest. */
export function occupancySentence({ devices }: KernelsAnswer, hosts: boolean): string {
  const known = devices.filter((device) => device.occupancy !== null);
  if (!known.length) return t("occupancy_unknown");
  const values = known.map((device) => device.occupancy as number);
  const [low, high] = [formatPercent(Math.min(...values)), formatPercent(Math.max(...values))];
  if (known.length === devices.length && known.length > 1 && low === high) return t("occupancy_same", { value: low });
  if (known.length > FEW_GPUS) return t("occupancy_range", { low, high });
  const list = known.map((device) => `${gpuName(device, hosts)} ${formatPercent(device.occupancy)}`);
  return t("occupancy_line", { list: list.join(", ") });
}

/** Every kernel, sortable and filterable; only the rows in view are in the page. */
export function Kernels({ answer }: { answer: KernelsAnswer }) {
  const [scrollTop, setScrollTop] = useState(0);
  const scroller = useRef<HTMLElement>(null);
  const letters = nameLength(useSize(scroller).width);
  const rows = visibleRows.value;
  const hosts = manyHosts(answer.devices);
  if (!answer.rows.length) return <p class="state">{t("kernels_none")}</p>;
  const height = Math.min(VIEW_HEIGHT, (rows.length + 1) * ROW_HEIGHT + 16);
  const top = Math.min(scrollTop, Math.max(0, rows.length * ROW_HEIGHT - VIEW_HEIGHT));
  const [first, last] = rowsInView(top, VIEW_HEIGHT, rows.length);
  return (
    <>
      <p class="sentence">{occupancySentence(answer, hosts)}</p>
      <Filters answer={answer} hosts={hosts} />
      <section
        class="table-scroll kernels"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region needs the keyboard
        tabIndex={0}
        aria-label={t("kernels_table")}
        style={{ height: `${height}px` }}
        ref={scroller}
        onScroll={(event) => setScrollTop(event.currentTarget.scrollTop)}
      >
        <table aria-rowcount={rows.length + 1}>
          <thead>
            <tr aria-rowindex={1}>
              {COLUMNS.map((column) => (
                <HeadCell key={column.key} column={column} />
              ))}
            </tr>
          </thead>
          <tbody>
            {first > 0 ? (
              <tr aria-hidden="true" style={{ height: `${first * ROW_HEIGHT}px` }}>
                <td colSpan={COLUMNS.length} />
              </tr>
            ) : null}
            {rows.slice(first, last).map((row, i) => (
              <Row key={`${first + i}`} row={row} index={first + i} letters={letters} answer={answer} hosts={hosts} />
            ))}
            {last < rows.length ? (
              <tr aria-hidden="true" style={{ height: `${(rows.length - last) * ROW_HEIGHT}px` }}>
                <td colSpan={COLUMNS.length} />
              </tr>
            ) : null}
          </tbody>
        </table>
      </section>
      {rows.length === 0 ? <p class="state">{t("kernels_no_match")}</p> : null}
    </>
  );
}
