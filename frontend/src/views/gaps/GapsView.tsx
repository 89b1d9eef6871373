import { t } from "../../i18n";
import { Section } from "../../ui/Section";

export function GapsView() {
  return (
    <Section id="gaps" title={t("view_gaps")}>
      <p />
    </Section>
  );
}
