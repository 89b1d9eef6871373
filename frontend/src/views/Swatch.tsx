import { cssBackground } from "../charts/palette";
import { tId } from "../i18n";
import { dark } from "../state/host";

/** The colour and texture of a category. */
export function Swatch({ category }: { category: string }) {
  return <span class="swatch" aria-hidden="true" style={{ background: cssBackground(category, dark.value) }} />;
}

/** What the colours mean. */
export function Legend({ categories }: { categories: readonly string[] }) {
  return (
    <ul class="legend">
      {categories.map((category) => (
        <li key={category} title={tId("category_hint", category)}>
          <Swatch category={category} />
          {tId("category", category)}
        </li>
      ))}
    </ul>
  );
}
