import { Snapshot } from "../src/api/snapshot/file";

/** A snapshot as a report of one file holds it. */
export function packed(answers: Record<string, Uint8Array | object>): Snapshot {
  const encoded = Object.entries(answers).map(([name, answer]) => {
    const bytes = answer instanceof Uint8Array ? answer : new TextEncoder().encode(JSON.stringify(answer));
    return [name, bytes] as const;
  });
  const places: Record<string, [number, number]> = {};
  let at = 0;
  for (const [name, bytes] of encoded) {
    places[name] = [at, bytes.length];
    at += bytes.length;
  }
  const head = new TextEncoder().encode(JSON.stringify({ version: 1, lang: null, left_out: [], answers: places }));
  const all = new Uint8Array(4 + head.length + at);
  new DataView(all.buffer).setUint32(0, head.length, true);
  all.set(head, 4);
  for (const [name, bytes] of encoded) all.set(bytes, 4 + head.length + places[name][0]);
  return new Snapshot(all);
}
