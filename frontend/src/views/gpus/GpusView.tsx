import { collectivesResource } from "../../api/collectives";
import { stepsResource } from "../../api/steps";
import { t } from "../../i18n";
import { Answer, Section } from "../../ui/Section";
import type { ViewProps } from "../viewProps";
import { Blame } from "./Blame";
import { Collectives } from "./Collectives";
import { Heat } from "./Heat";

/** How the GPUs compare: who keeps whom waiting, and what their communication costs. */
export function GpusView({ result }: ViewProps) {
  return (
    <>
      <Section id="imbalance" title={t("gpus_imbalance")} lead={t("gpus_imbalance_lead")}>
        <Blame result={result} />
        <Answer resource={stepsResource} label={t("loading_steps")}>
          {(answer) => <Heat answer={answer} result={result} />}
        </Answer>
      </Section>
      <Section id="collectives" title={t("gpus_collectives")} lead={t("gpus_collectives_lead")}>
        <Answer resource={collectivesResource} label={t("loading_collectives")}>
          {(answer) => <Collectives answer={answer} />}
        </Answer>
      </Section>
    </>
  );
}
