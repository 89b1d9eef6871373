import { t } from "../../i18n";
import { Boundary, Section } from "../../ui/Section";
import type { ViewProps } from "../viewProps";
import { Accounting } from "./Accounting";
import { Findings } from "./Findings";
import { Verdict } from "./Summary";

/** How the run is: the verdict, where the time went, what is wrong in order of cost. */
export function VerdictView({ result }: ViewProps) {
  return (
    <>
      <Boundary>
        <Verdict result={result} />
      </Boundary>
      {result.devices.length && result.profile.format !== "telemetry" ? (
        <Section id="accounting" title={t("accounting_title")} lead={t("accounting_lead")}>
          <Accounting result={result} />
        </Section>
      ) : null}
      <Boundary>
        <Findings result={result} />
      </Boundary>
    </>
  );
}
