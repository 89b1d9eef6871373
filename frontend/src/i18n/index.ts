import { signal } from "@preact/signals";
import { en } from "./en";
import { es } from "./es";

export type Lang = "en" | "es";
export type MessageKey = keyof typeof en;
export type MessageParams = Record<string, string | number>;

export const LANGS: readonly Lang[] = ["en", "es"];
const CATALOGUES: Record<Lang, Record<MessageKey, string>> = { en, es };

export const isLang = (value: unknown): value is Lang => LANGS.includes(value as Lang);

/** The given language, else the browser's first that there is a catalogue for, else English. */
export function chooseLang(
  wanted: string | null,
  preferred: readonly string[] = globalThis.navigator?.languages ?? [],
): Lang {
  if (isLang(wanted)) return wanted;
  for (const tag of preferred) {
    const language = tag.toLowerCase().split("-")[0];
    if (isLang(language)) return language;
  }
  return "en";
}

export const lang = signal<Lang>(chooseLang(null));

/** Puts parameters into a message; a parameter that is not given stays visible as `{name}`. */
export function fill(message: string, params: MessageParams): string {
  return message.replace(/\{(\w+)\}/g, (whole, name: string) => (name in params ? String(params[name]) : whole));
}

/** The message of a key in the current language. */
export function t(key: MessageKey, params: MessageParams = {}): string {
  return fill(CATALOGUES[lang.value][key], params);
}

type PluralKey = { [K in MessageKey]: K extends `${infer Stem}_other` ? Stem : never }[MessageKey];

// Building these takes longer than all else of a message.
const rules = new Map<Lang, { plural: Intl.PluralRules; number: Intl.NumberFormat }>();

function rulesOf(language: Lang) {
  let found = rules.get(language);
  if (!found) {
    found = {
      plural: new Intl.PluralRules(language),
      number: new Intl.NumberFormat(language, { useGrouping: "min2" }),
    };
    rules.set(language, found);
  }
  return found;
}

/** The singular or plural message (`key_one`, `key_other`) for a count, with the count as `{n}`. */
export function plural(key: PluralKey, count: number, params: MessageParams = {}): string {
  const { plural: choose, number } = rulesOf(lang.value);
  const form = choose.select(count) === "one" ? "one" : "other";
  return t(`${key}_${form}` as MessageKey, { n: number.format(count), ...params });
}

/** Whether there is a message of that name. */
export const hasMessage = (key: string): key is MessageKey => key in en;

/** The message of a key made from an id the server sent; an unknown id is shown as it is. */
export function tId(prefix: string, id: string, params: MessageParams = {}): string {
  const key = `${prefix}_${id}`;
  return hasMessage(key) ? t(key, params) : id;
}
