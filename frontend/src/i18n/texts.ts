/** What a catalogue in another language must hold for one in English: a key that it lacks does not compile. */
export type Texts<T> = { readonly [K in keyof T]: string };
