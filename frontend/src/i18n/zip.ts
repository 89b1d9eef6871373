/** Texts under the keys of another catalogue, in its order: how the built module keeps the Spanish ones. */
export const zip = <T extends object>(keys: T, texts: readonly string[]): Record<keyof T, string> =>
  Object.fromEntries(Object.keys(keys).map((key, i) => [key, texts[i]])) as Record<keyof T, string>;
