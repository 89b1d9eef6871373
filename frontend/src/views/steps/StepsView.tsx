import { t } from "../../i18n";
import { Section } from "../../ui/Section";

export function StepsView() {
  return (
    <Section id="steps" title={t("view_steps")}>
      <p />
    </Section>
  );
}
