/**
 * A report of one file: what the server would answer lies in the page itself, and is found again here.
 * tb_gpu_doctor/plugin/html_report.py writes it and says what it looks like.
 */

const ELEMENT = "gpu-doctor-snapshot";
const VERSION = 1;

interface Header {
  version: number;
  lang: string | null;
  left_out: string[];
  answers: Record<string, [number, number]>;
}

/** The answers of a snapshot by name. */
export class Snapshot {
  private readonly parsed = new Map<string, unknown>();
  private readonly body: Uint8Array<ArrayBuffer>;
  readonly header: Header;

  constructor(bytes: Uint8Array<ArrayBuffer>) {
    const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    this.header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as Header;
    if (this.header.version !== VERSION) throw new Error(`snapshot version ${this.header.version}`);
    this.body = bytes.subarray(4 + length);
  }

  /** What there is. */
  names(): string[] {
    return Object.keys(this.header.answers);
  }

  /** An answer's bytes, of their own. */
  bytes(name: string): ArrayBuffer | null {
    const place = Object.hasOwn(this.header.answers, name) ? this.header.answers[name] : undefined;
    return place ? this.body.slice(place[0], place[0] + place[1]).buffer : null;
  }

  /** An answer as JSON, parsed once; not to be changed. */
  json<T>(name: string): T | null {
    if (!this.parsed.has(name)) {
      const bytes = this.bytes(name);
      this.parsed.set(name, bytes ? JSON.parse(new TextDecoder().decode(bytes)) : null);
    }
    return this.parsed.get(name) as T | null;
  }
}

const element = (): HTMLElement | null => globalThis.document?.getElementById?.(ELEMENT) ?? null;

/** Whether the page is such a report: then there is nobody to ask. */
export const isSnapshot = (): boolean => element() !== null;

let loaded: Promise<Snapshot> | null = null;

async function load(): Promise<Snapshot> {
  const text = atob(element()?.textContent ?? "");
  const packed = Uint8Array.from(text, (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Snapshot(new Uint8Array(await new Response(stream).arrayBuffer()));
}

export function loadSnapshot(): Promise<Snapshot> {
  loaded ??= load();
  return loaded;
}
