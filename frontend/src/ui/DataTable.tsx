import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { fullText, shorten } from "../format";
import { plural, t } from "../i18n";
import { shownProfile } from "../state/resource";
import { type Cell, fileName, saveCsv } from "./export";
import { Icon } from "./Icon";
import { useTip } from "./Term";

export interface Column<Row> {
  /** Its name in the sort order (and so in links). */
  key: string;
  label: string;
  /** Its definition. */
  hint?: string;
  /** What it is sorted, searched and exported by; null: unknown. */
  value: (row: Row) => string | number | null;
  /** What is shown; without it the value's own text. */
  cell?: (row: Row) => ComponentChildren;
  /** What the CSV holds where that is not the value. */
  csv?: (row: Row) => Cell;
  /** The head of the column in the CSV: with the unit. Without it the label. */
  csvLabel?: string;
  /** Right-aligned, and first sorted from large to small. */
  number?: boolean;
  /** Not part of the table on the page, only of the CSV. */
  csvOnly?: boolean;
  title?: (row: Row) => string | undefined;
}

/** A state of the table that a link keeps: a signal of `state/params`, or any other. */
export interface Held<T> {
  value: T;
}

interface DataTableProps<Row> {
  /** Names the CSV file. */
  name: string;
  /** For screen readers. */
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  /** `key` or `-key` for descending. */
  order: Held<string>;
  /** The text of a search over the columns of text; without it there is no search field. */
  search?: Held<string>;
  searchLabel?: string;
  /** More filters, beside the search field. */
  tools?: ComponentChildren;
  /** What is said about the rows beside their count. */
  note?: string;
  /** Makes each row a choice; `chosen` tells which one is. */
  onChoose?: (row: Row) => void;
  chosen?: (row: Row) => boolean;
  /** Pixels of height at most. */
  tallest?: number;
  empty?: string;
  /** Rows in their own order get this key; without it their place. */
  rowKey?: (row: Row) => string;
}

export const ROW_HEIGHT = 32;
const MARGIN_ROWS = 12;
const VIEW_HEIGHT = 480;

/** Which rows of a scrolled list to put into the page: [first, last). */
export function rowsInView(scrollTop: number, height: number, count: number): [number, number] {
  const first = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT) - MARGIN_ROWS);
  const last = Math.min(count, Math.ceil((scrollTop + height) / ROW_HEIGHT) + MARGIN_ROWS);
  return [Math.min(first, last), last];
}

const compare = (a: string | number, b: string | number): number => (a < b ? -1 : a > b ? 1 : 0);

/** Rows sorted by `key` or `-key`; unknown values always last; stable; an unknown key leaves them as they are. */
export function sortRows<Row>(rows: readonly Row[], columns: readonly Column<Row>[], order: string): Row[] {
  const column = columns.find(({ key }) => key === order.replace(/^-/, ""));
  if (!column) return [...rows];
  const sign = order.startsWith("-") ? -1 : 1;
  const keyed = rows.map((row) => ({ row, value: column.value(row) }));
  keyed.sort((a, b) => {
    if (a.value === null || b.value === null) return a.value === b.value ? 0 : a.value === null ? 1 : -1;
    return sign * compare(a.value, b.value);
  });
  return keyed.map(({ row }) => row);
}

/** Rows in whose texts every word of the query stands. */
export function searchRows<Row>(rows: readonly Row[], columns: readonly Column<Row>[], query: string): Row[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [...rows];
  const texts = columns.filter(({ number }) => !number);
  return rows.filter((row) => {
    const text = texts.map(({ value }) => String(value(row) ?? "").toLowerCase());
    return words.every((word) => text.some((each) => each.includes(word)));
  });
}

interface HeadCellProps<Row> {
  column: Column<Row>;
  order: Held<string>;
}

function HeadCell<Row>({ column, order }: HeadCellProps<Row>) {
  const tip = useTip<HTMLButtonElement>(column.hint);
  const { key } = column;
  const sorted = order.value === key ? "ascending" : order.value === `-${key}` ? "descending" : "none";
  const first = column.number ? `-${key}` : key;
  const next = sorted === "none" ? first : sorted === "ascending" ? `-${key}` : key;
  return (
    <th scope="col" aria-sort={sorted} class={column.number ? "number" : undefined}>
      <button
        type="button"
        class={column.hint ? "sort sort-term" : "sort"}
        {...tip.props}
        onKeyDown={tip.onKeyDown}
        onClick={() => {
          order.value = next;
        }}
      >
        <span>{column.label}</span>
        <span class="arrow" aria-hidden="true">
          {sorted === "ascending" ? "▲" : sorted === "descending" ? "▼" : ""}
        </span>
      </button>
      {tip.tip}
    </th>
  );
}

const LONGEST_CELL = 80;

function shownCell<Row>(column: Column<Row>, row: Row): ComponentChildren {
  if (column.cell) return column.cell(row);
  const value = column.value(row);
  return value === null ? "–" : shorten(String(value), LONGEST_CELL);
}

/** A table that sorts, searches, saves as CSV and puts only the rows in view into the page. */
export function DataTable<Row>(props: DataTableProps<Row>) {
  const { rows, order, search, onChoose, chosen, tallest = VIEW_HEIGHT } = props;
  const columns = props.columns.filter(({ csvOnly }) => !csvOnly);
  const [scrollTop, setScrollTop] = useState(0);
  const scroller = useRef<HTMLDivElement>(null);
  const query = search?.value ?? "";
  const sort = order.value;
  // Dependencies: columns are made anew with each drawing, but mean the same.
  const found = useMemo(
    () => sortRows(searchRows(rows, props.columns, query), props.columns, sort),
    [rows, query, sort],
  );
  const height = Math.min(tallest, (found.length + 1) * ROW_HEIGHT + 16);
  const top = Math.min(scrollTop, Math.max(0, found.length * ROW_HEIGHT - tallest));
  const [first, last] = rowsInView(top, tallest, found.length);
  const save = () => {
    const profile = shownProfile.peek();
    saveCsv(
      fileName([profile?.run, profile?.session, props.name], "csv"),
      props.columns.map(({ csvLabel, label }) => csvLabel ?? label),
      found.map((row) => props.columns.map((column) => (column.csv ? column.csv(row) : column.value(row)))),
    );
  };
  return (
    <div class="data-table">
      <div class="filters">
        {search ? (
          <label>
            {props.searchLabel ?? t("table_search")}
            <input
              type="search"
              value={query}
              spellcheck={false}
              onInput={(event) => {
                search.value = event.currentTarget.value;
              }}
            />
          </label>
        ) : null}
        {props.tools}
        <span class="muted" role="status">
          {plural("table_rows", found.length)}
          {props.note ? ` · ${props.note}` : ""}
        </span>
        <button type="button" class="quiet save" onClick={save} disabled={!found.length}>
          <Icon name="save" />
          CSV
          <span class="hidden"> {props.label}</span>
        </button>
      </div>
      {/* No landmark: it often has the name of the section around it. */}
      <div
        class="table-scroll rows"
        role="group"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region needs the keyboard
        tabIndex={0}
        aria-label={props.label}
        style={{ "--rows-height": `${height}px` }}
        ref={scroller}
        onScroll={(event) => setScrollTop(event.currentTarget.scrollTop)}
      >
        <table aria-rowcount={found.length + 1}>
          <thead>
            <tr aria-rowindex={1}>
              {columns.map((column) => (
                <HeadCell key={column.key} column={column} order={order} />
              ))}
            </tr>
          </thead>
          <tbody>
            {first > 0 ? (
              <tr aria-hidden="true" style={{ height: `${first * ROW_HEIGHT}px` }}>
                <td colSpan={columns.length} />
              </tr>
            ) : null}
            {found.slice(first, last).map((row, i) => {
              const [head, ...rest] = columns;
              const isChosen = chosen?.(row) ?? false;
              return (
                <tr
                  key={props.rowKey ? props.rowKey(row) : `${first + i}`}
                  aria-rowindex={first + i + 2}
                  class={isChosen ? "chosen" : undefined}
                >
                  <th scope="row" class={head.number ? "number" : undefined} title={head.title?.(row)}>
                    {onChoose ? (
                      <button
                        type="button"
                        class="choose"
                        aria-current={isChosen ? "true" : undefined}
                        onClick={() => onChoose(row)}
                      >
                        {shownCell(head, row)}
                      </button>
                    ) : (
                      shownCell(head, row)
                    )}
                  </th>
                  {rest.map((column) => (
                    <td key={column.key} class={column.number ? "number" : undefined} title={column.title?.(row)}>
                      {shownCell(column, row)}
                    </td>
                  ))}
                </tr>
              );
            })}
            {last < found.length ? (
              <tr aria-hidden="true" style={{ height: `${(found.length - last) * ROW_HEIGHT}px` }}>
                <td colSpan={columns.length} />
              </tr>
            ) : null}
          </tbody>
        </table>
      </div>
      {found.length === 0 ? <p class="state">{props.empty ?? t("table_none")}</p> : null}
    </div>
  );
}

/** A title for a name that is shown cut. */
export const titleOf = (text: string | null | undefined): string | undefined => (text ? fullText(text) : undefined);
