import { cssBackground } from "../charts/palette";
import { t, tId } from "../i18n";
import { dark } from "../state/host";

/** The colour and texture of a category. */
export function Swatch({ category }: { category: string }) {
  return <span class="swatch" aria-hidden="true" style={{ background: cssBackground(category, dark.value) }} />;
}

/** What the colours are; their meaning shows on hover. `note` ends the list. */
export function Legend({ categories, note }: { categories: readonly string[]; note?: string }) {
  return (
    <ul class="legend">
      {categories.map((category) => (
        <li key={category} title={tId("category_hint", category)}>
          <Swatch category={category} />
          {tId("category", category)}
        </li>
      ))}
      {note ? <li class="muted">{note}</li> : null}
    </ul>
  );
}

/** What each part means, in words: for those who do not hover. */
export function Definitions({ categories }: { categories: readonly string[] }) {
  return (
    <details>
      <summary>{t("accounting_meaning")}</summary>
      <dl class="definitions">
        {categories.map((category) => (
          <div key={category}>
            <dt>
              <Swatch category={category} /> {tId("category", category)}
            </dt>
            <dd>{tId("category_hint", category)}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
