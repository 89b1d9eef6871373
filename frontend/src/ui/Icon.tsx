/** Small pictures beside words; always decoration, the words say the same. */

const PATHS = {
  critical: "M8 1.2 14.8 8 8 14.8 1.2 8zM7.1 4.4h1.8v4.4H7.1zM7.1 10h1.8v1.8H7.1z",
  warning: "M8 1.4 15.2 14.4H.8zM7.1 6h1.8v4.2H7.1zM7.1 11.2h1.8V13H7.1z",
  info: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1zM7.1 7h1.8v5H7.1zM7.1 4h1.8v1.8H7.1z",
  ok: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1zM4.2 8.3l1.2-1.2 1.8 1.8 3.6-3.7L12 6.4l-4.8 4.9z",
  cannot_tell:
    "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1zM7.1 11h1.8v1.8H7.1zM5.2 5.9C5.3 4.2 6.5 3.3 8 3.3s2.8.9 2.8 2.5c0 1.9-1.9 2-1.9 3.5v.4H7.1V9c0-2 1.9-2.1 1.9-3.2 0-.6-.4-.9-1-.9s-1 .3-1.1 1z",
  open: "M9 2h5v5h-1.6V4.7L7.6 9.5 6.5 8.4l4.8-4.8H9zM3 4h4v1.6H4.6v5.8h5.8V9H12v4H3z",
  copy: "M5 1.5h8.5v10H11V14.5H2.5v-10H5zM6.5 4.5H11V10h1V3H6.5zM4 6v7h5.5V6z",
  refresh: "M8 2.5a5.5 5.5 0 0 1 4.6 2.5V2.6H14v5H9V6.2h2.6A4 4 0 1 0 12 8.6h1.5A5.5 5.5 0 1 1 8 2.5z",
  save: "M7.3 1.5h1.4v6.6l2.3-2.3 1 1L8 10.8l-4-4 1-1 2.3 2.3zM2.5 12.5h11V14h-11z",
  next: "M5 3l6 5-6 5zM11.5 3H13v10h-1.5z",
  chevron: "M3.5 5.5h9L8 11z",
  link: "M6.6 9.4a2.6 2.6 0 0 0 3.7 0l2.4-2.4a2.6 2.6 0 0 0-3.7-3.7L8 4.3l1 1 1-1a1.2 1.2 0 0 1 1.7 1.7L9.3 8.4a1.2 1.2 0 0 1-1.7 0zM9.4 6.6a2.6 2.6 0 0 0-3.7 0L3.3 9A2.6 2.6 0 0 0 7 12.7l1-1-1-1-1 1A1.2 1.2 0 0 1 4.3 10l2.4-2.4a1.2 1.2 0 0 1 1.7 0z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      class={`icon icon-${name}`}
      width={size}
      height={size}
      viewBox="0 0 16 16"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name]} fill="currentColor" fill-rule="evenodd" />
    </svg>
  );
}
