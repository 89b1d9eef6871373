/**
 * What surrounds the tab: TensorBoard's window and the iframe it put us in. Everything here
 * works without them too (the page opened by itself, a foreign parent, no storage).
 */

import { effect, signal } from "@preact/signals";

function reachableParent(): Window | null {
  try {
    // Reading a property throws for a parent of another origin (and where there is no window at all).
    return window.parent !== window && window.parent.document ? window.parent : null;
  } catch {
    return null;
  }
}

const outer = reachableParent();
/** The window whose address bar the user sees. */
const addressWindow = (): Window => outer ?? window;

function ownFrame(): HTMLElement | null {
  try {
    return window.frameElement as HTMLElement | null;
  } catch {
    return null;
  }
}

function frameShown(): boolean {
  return ownFrame()?.style.visibility !== "hidden" && ownFrame()?.style.display !== "none";
}

/** Whether the user sees this tab now. TensorBoard keeps hidden tabs alive in hidden iframes. */
export const visible = signal(true);

export const dark = signal(false);

/** Paper is light. */
const printing = () => window.matchMedia("print").matches;

function readDark(): boolean {
  if (printing()) return false;
  if (outer?.document.body) {
    const body = outer.document.body;
    // Only TensorBoard says it by class; another same-origin parent may not.
    if (body.classList.contains("dark-mode")) return true;
    if (outer.document.querySelector("tb-webapp")) return false;
  }
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Starts watching the surroundings; call once. */
export function watchHost(): void {
  const show = () => {
    visible.value = frameShown() && document.visibilityState !== "hidden";
  };
  const paint = () => {
    dark.value = readDark();
  };
  show();
  paint();
  document.addEventListener("visibilitychange", show);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  window.matchMedia("print").addEventListener("change", paint);
  const frame = ownFrame();
  if (frame) new MutationObserver(show).observe(frame, { attributes: true, attributeFilter: ["style", "class"] });
  if (outer?.document.body) {
    new MutationObserver(paint).observe(outer.document.body, { attributes: true, attributeFilter: ["class"] });
  }
}

/** Resolves as soon as the tab is visible. */
export function whenVisible(): Promise<void> {
  return new Promise((resolve) => {
    if (visible.peek()) {
      resolve();
      return;
    }
    let stop: (() => void) | null = null;
    stop = effect(() => {
      if (!visible.value) return;
      resolve();
      queueMicrotask(() => stop?.());
    });
  });
}

export function readHash(): string {
  try {
    return addressWindow().location.hash;
  } catch {
    return window.location.hash;
  }
}

/** Puts a hash into the address bar without a history entry. */
export function writeHash(hash: string): void {
  try {
    addressWindow().history.replaceState(addressWindow().history.state, "", hash);
  } catch {
    // Too many calls in a row (Firefox, Safari) or no access: the next change writes again.
  }
}

/** The address that brings somebody else to the given hash. */
export function shareUrl(hash: string): string {
  try {
    const { origin, pathname } = addressWindow().location;
    return `${origin}${pathname}${hash}`;
  } catch {
    return window.location.href;
  }
}

export function onHashChange(listener: () => void): void {
  try {
    addressWindow().addEventListener("hashchange", listener);
  } catch {
    window.addEventListener("hashchange", listener);
  }
}

const STORAGE_PREFIX = "gpu_doctor.";

export function loadSetting(key: string): string | null {
  try {
    return window.localStorage.getItem(STORAGE_PREFIX + key);
  } catch {
    return null;
  }
}

export function saveSetting(key: string, value: string): void {
  try {
    window.localStorage.setItem(STORAGE_PREFIX + key, value);
  } catch {
    // Private windows and full stores: the view still works, it is only not remembered.
  }
}

interface HostMessage {
  type: string;
  id: number;
  payload: unknown;
  error: unknown;
  isReply: boolean;
}

/** Listens for TensorBoard's reload button over its experimental message port. */
export function onDataReloaded(listener: () => void): void {
  if (!outer) return;
  try {
    const channel = new MessageChannel();
    const port = channel.port1;
    port.onmessage = (event) => {
      let message: HostMessage;
      try {
        message = JSON.parse(String(event.data)) as HostMessage;
      } catch {
        return;
      }
      if (message.isReply) return;
      if (message.type === "experimental.DataReloaded") listener();
      const reply: HostMessage = { type: message.type, id: message.id, payload: null, error: null, isReply: true };
      port.postMessage(JSON.stringify(reply));
    };
    outer.postMessage("experimental.bootstrap", window.location.origin, [channel.port2]);
  } catch {
    // The port is experimental: without it the Refresh button remains.
  }
}
