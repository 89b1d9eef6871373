/**
 * The tab's state in the address bar, in TensorBoard's own form:
 * `#gpu_doctor&p.gpu_doctor.<key>=<value>`, values percent-encoded.
 */

export const PLUGIN = "gpu_doctor";
const PREFIX = `p.${PLUGIN}.`;

export type UrlState = Readonly<Record<string, string>>;

function decode(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/** Our keys of a location hash; everything else in it is ignored. */
export function parseHash(hash: string): UrlState {
  const state: Record<string, string> = {};
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at > 0 && part.startsWith(PREFIX)) state[decode(part.slice(PREFIX.length, at))] = decode(part.slice(at + 1));
  }
  return state;
}

/** The hash with our keys replaced by `state`; TensorBoard's and other plugins' parts stay as they are. */
export function formatHash(hash: string, state: UrlState): string {
  const others = hash
    .replace(/^#/, "")
    .split("&")
    .filter((part) => part.includes("=") && !part.startsWith(PREFIX));
  const own = Object.keys(state)
    .sort()
    .map((key) => `${PREFIX}${encodeURIComponent(key)}=${encodeURIComponent(state[key])}`);
  return `#${[PLUGIN, ...own, ...others].join("&")}`;
}
