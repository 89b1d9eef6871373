import { t } from "../../i18n";
import { kernelsResource } from "../../state/store";
import { Answer, Section } from "../../ui/Section";
import { Kernels } from "./Kernels";

/** Every kernel of the recording. */
export function KernelsView() {
  return (
    <Section id="kernels" title={t("kernels_title")} lead={t("kernels_lead")}>
      <Answer resource={kernelsResource} label={t("loading_kernels")}>
        {(answer) => <Kernels answer={answer} />}
      </Answer>
    </Section>
  );
}
