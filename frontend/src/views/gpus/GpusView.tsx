import { t } from "../../i18n";
import { Section } from "../../ui/Section";

export function GpusView() {
  return (
    <Section id="gpus" title={t("view_gpus")}>
      <p />
    </Section>
  );
}
