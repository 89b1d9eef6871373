import { MEASURES_DARK, MEASURES_LIGHT } from "./families";
import type { Paint } from "./paint";

/**
 * Colours of the categories, after Okabe and Ito (told apart with any colour vision). Work is
 * solid; waiting is hatched, so that the two differ without colour: "/" where the host was
 * late, "\" where the device waited for itself or others, dots where nothing explains it.
 */

export const WORK = ["compute", "communication", "transfer"] as const;
export const CAUSES = [
  "input",
  "launch",
  "sync",
  "compile",
  "checkpoint",
  "host_other",
  "allocator",
  "dependency",
  "peer",
  "kernel_gap",
  "queued",
  "no_evidence",
] as const;

const LIGHT: Record<string, Paint> = {
  compute: { color: "#0072b2", texture: "solid" },
  communication: { color: "#e69f00", texture: "solid" },
  communication_wait: { color: "#b86e00", texture: "backward" },
  communication_moving: { color: "#e69f00", texture: "solid" },
  communication_unsplit: { color: "#c9a24a", texture: "solid" },
  transfer: { color: "#009e73", texture: "solid" },
  input: { color: "#d55e00", texture: "forward" },
  launch: { color: "#a8509a", texture: "forward" },
  sync: { color: "#2a87c0", texture: "forward" },
  compile: { color: "#6b6b00", texture: "forward" },
  checkpoint: { color: "#7a4a21", texture: "forward" },
  host_other: { color: "#55606e", texture: "forward" },
  allocator: { color: "#c2185b", texture: "forward" },
  dependency: { color: "#4b5bb5", texture: "backward" },
  peer: { color: "#b8860b", texture: "backward" },
  kernel_gap: { color: "#2f8f8f", texture: "backward" },
  queued: { color: "#a05a00", texture: "backward" },
  no_evidence: { color: "#8a8f98", texture: "dots" },
  ...MEASURES_LIGHT,
};

const DARK: Record<string, Paint> = {
  compute: { color: "#3f9bd8", texture: "solid" },
  communication: { color: "#f0b23a", texture: "solid" },
  communication_wait: { color: "#ffc861", texture: "backward" },
  communication_moving: { color: "#f0b23a", texture: "solid" },
  communication_unsplit: { color: "#b8924a", texture: "solid" },
  transfer: { color: "#2cbd92", texture: "solid" },
  input: { color: "#ff8a3d", texture: "forward" },
  launch: { color: "#d98cc9", texture: "forward" },
  sync: { color: "#6fc0f0", texture: "forward" },
  compile: { color: "#d6d65c", texture: "forward" },
  checkpoint: { color: "#c79a6b", texture: "forward" },
  host_other: { color: "#aab4c2", texture: "forward" },
  allocator: { color: "#ff80ab", texture: "forward" },
  dependency: { color: "#96a4ff", texture: "backward" },
  peer: { color: "#e0c070", texture: "backward" },
  kernel_gap: { color: "#6fd0d0", texture: "backward" },
  queued: { color: "#ffb56b", texture: "backward" },
  no_evidence: { color: "#9aa0aa", texture: "dots" },
  ...MEASURES_DARK,
};

const UNKNOWN_PAINT: Paint = { color: "#8a8f98", texture: "dots" };

export const LANE_BACKGROUND = { light: "#f1f3f6", dark: "#20242b" } as const;

export function paintOf(category: string, dark: boolean): Paint {
  return (dark ? DARK : LIGHT)[category] ?? UNKNOWN_PAINT;
}

export const isWork = (category: string): boolean => (WORK as readonly string[]).includes(category);

/** How strong the ground between the hatches is. */
export const GROUND = 0.3;

export function mix(color: string, background: string, share: number): string {
  const a = channels(color);
  const b = channels(background);
  const hex = a.map((value, i) =>
    Math.round(value * share + b[i] * (1 - share))
      .toString(16)
      .padStart(2, "0"),
  );
  return `#${hex.join("")}`;
}

export function channels(color: string): [number, number, number] {
  const value = Number.parseInt(color.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** The same look as on the canvas, for legends and bars. */
export function cssBackground(category: string, dark: boolean): string {
  const { color, texture } = paintOf(category, dark);
  const ground = mix(color, LANE_BACKGROUND[dark ? "dark" : "light"], GROUND);
  switch (texture) {
    case "solid":
      return color;
    case "forward":
      return `repeating-linear-gradient(135deg, ${color} 0 2px, ${ground} 2px 5px)`;
    case "backward":
      return `repeating-linear-gradient(45deg, ${color} 0 2px, ${ground} 2px 5px)`;
    case "dots":
      return `radial-gradient(${color} 1px, transparent 1.2px) 0 0 / 5px 5px, ${ground}`;
  }
}
