import { scaleColor } from "../charts/theme";

const STEPS = [0, 0.17, 0.33, 0.5, 0.67, 0.83, 1];

/** What the colours of a heat map mean, from its lowest to its highest value. */
export function ScaleBar({ label, low, high }: { label: string; low: string; high: string }) {
  return (
    <p class="scale-bar">
      <span>{label}</span>
      <span class="muted">{low}</span>
      <span
        class="scale-colors"
        aria-hidden="true"
        style={{ background: `linear-gradient(90deg, ${STEPS.map(scaleColor).join(", ")})` }}
      />
      <span class="muted">{high}</span>
    </p>
  );
}
