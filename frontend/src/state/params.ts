/**
 * What a link keeps of the page, one signal a key. A view declares its own parts here:
 *
 *     export const order = textParam("gap_sort", "-duration_ms");
 *
 * The store writes them all into the address and reads them from it. A view's module is loaded when it is first opened:
 * until then what an address says of its parts is kept as it stands.
 */

import { batch, type Signal, signal } from "@preact/signals";
import type { UrlState } from "./url";

export interface Codec<T> {
  /** The value of a text from the address; undefined when it says nothing sensible. */
  parse: (text: string) => T | undefined;
  format: (value: T) => string;
}

interface Param {
  /** Forgotten when another profile is chosen. */
  ofProfile: boolean;
  text: () => string | null;
  apply: (text: string | undefined) => void;
  reset: () => void;
}

const params = new Map<string, Param>();
/** What the address says of parts that no module has declared yet. */
let unclaimed: UrlState = {};
/** Counts what was declared, so that whoever writes the address watches new parts as well. */
const declared = signal(0);

interface Options {
  /** False: it also holds for the next profile (a sort order, say). */
  ofProfile?: boolean;
}

/** A part of the page's state that links keep. `key` is its name in the address: a-z and _, once in the whole tab. */
export function param<T>(key: string, initial: T, codec: Codec<T>, { ofProfile = true }: Options = {}): Signal<T> {
  if (params.has(key)) throw new Error(`two parts of the state are called ${key}`);
  const state = signal(initial);
  const plain = codec.format(initial);
  params.set(key, {
    ofProfile,
    text: () => {
      const text = codec.format(state.value);
      return text === plain ? null : text;
    },
    apply: (text) => {
      const value = text === undefined ? undefined : codec.parse(text);
      // What did not change keeps its identity, so that nothing is drawn anew for it.
      if (value === undefined) state.value = initial;
      else if (codec.format(value) !== codec.format(state.peek())) state.value = value;
    },
    reset: () => {
      state.value = initial;
    },
  });
  claim(key);
  declared.value = params.size;
  return state;
}

/** A part that is declared after the address was read takes over what that says of it. */
function claim(key: string): void {
  const { [key]: text, ...others } = unclaimed;
  if (text === undefined) return;
  unclaimed = others;
  applyOne(key, text);
}

function applyOne(key: string, text: string | undefined): void {
  const each = params.get(key);
  try {
    each?.apply(text);
  } catch {
    each?.reset();
  }
}

const TEXT: Codec<string> = { parse: (text) => text, format: (value) => value };

export const textParam = (key: string, initial = "", options?: Options): Signal<string> =>
  param(key, initial, TEXT, options);

/** A whole number of at least 0, or null. */
export const indexParam = (key: string, options?: Options): Signal<number | null> =>
  param<number | null>(
    key,
    null,
    {
      parse: (text) => (/^\d{1,15}$/.test(text) ? Number(text) : undefined),
      format: (value) => (value === null ? "" : String(value)),
    },
    options,
  );

/** One of some words. */
export const choiceParam = <T extends string>(key: string, choices: readonly T[], options?: Options): Signal<T> =>
  param<T>(key, choices[0], { parse: (text) => choices.find((choice) => choice === text), format: (v) => v }, options);

/** A set of words, in the order in which they were added. */
export const listParam = (key: string, options?: Options): Signal<readonly string[]> =>
  param<readonly string[]>(
    key,
    [],
    {
      parse: (text) => text.split(",").filter(Boolean).map(decodeURIComponent),
      format: (values) => values.map(encodeURIComponent).join(","),
    },
    options,
  );

/** All that differs from its initial value. */
export function paramState(): UrlState {
  void declared.value;
  const state: Record<string, string> = { ...unclaimed };
  for (const [key, each] of params) {
    const text = each.text();
    if (text !== null) state[key] = text;
  }
  return state;
}

/** Takes over what an address says; what it does not mention becomes initial. */
export function applyParams(state: UrlState): void {
  batch(() => {
    unclaimed = Object.fromEntries(Object.entries(state).filter(([key]) => !params.has(key)));
    for (const key of params.keys()) applyOne(key, state[key]);
  });
}

/** Another profile: nothing that belongs to the one before stays. */
export function resetProfileParams(): void {
  batch(() => {
    unclaimed = {};
    for (const each of params.values()) if (each.ofProfile) each.reset();
  });
}
