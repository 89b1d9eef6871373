/** Colours of what charts are drawn on; the palette of the categories is in palette.ts. */
export interface Theme {
  dark: boolean;
  text: string;
  muted: string;
  line: string;
  band: string;
  accent: string;
  surface: string;
  /** For a mark beside the accent: what evidence points at. */
  focus: string;
}

export const THEMES: Record<"light" | "dark", Theme> = {
  light: {
    dark: false,
    text: "#1c2330",
    muted: "#566070",
    line: "#c9cfd8",
    band: "#e4e8ee",
    accent: "#b3261e",
    surface: "#ffffff",
    focus: "#0b5cad",
  },
  dark: {
    dark: true,
    text: "#e8ebf0",
    muted: "#a5aebb",
    line: "#454c58",
    band: "#2d333d",
    accent: "#ff8a80",
    surface: "#1b1f26",
    focus: "#82b9f5",
  },
};

export const themeOf = (dark: boolean): Theme => THEMES[dark ? "dark" : "light"];

/** Ids of lines in one chart, told apart with any colour vision (Okabe and Ito), dashes after eight. */
const LINES = {
  light: ["#0072b2", "#d55e00", "#009e73", "#a8509a", "#8a5f00", "#2a87c0", "#55606e", "#000000"],
  dark: ["#56b4e9", "#ff8a3d", "#2cbd92", "#d98cc9", "#f0e442", "#6fc0f0", "#aab4c2", "#ffffff"],
};

export function lineStyle(index: number, dark: boolean): { color: string; dash: number[] } {
  const colors = LINES[dark ? "dark" : "light"];
  const round = Math.floor(index / colors.length);
  return { color: colors[index % colors.length], dash: [[], [6, 4], [2, 3], [10, 3, 2, 3]][round % 4] };
}

// Cividis (Nunez, Anderton and Renslow 2018): the same order of lightness with any colour vision.
const SCALE = ["#00224e", "#2a3f6d", "#575d6d", "#7d7c78", "#a59c74", "#d2c060", "#fee838"];

/** A colour for a share of 0..1, dark to light. */
export function scaleColor(share: number): string {
  const at = Math.min(Math.max(Number.isFinite(share) ? share : 0, 0), 1) * (SCALE.length - 1);
  const low = Math.min(Math.floor(at), SCALE.length - 2);
  const part = (text: string, i: number) => Number.parseInt(text.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mixed = [0, 1, 2].map((i) => {
    const [a, b] = [part(SCALE[low], i), part(SCALE[low + 1], i)];
    return Math.round(a + (b - a) * (at - low));
  });
  return `rgb(${mixed.join(" ")})`;
}
