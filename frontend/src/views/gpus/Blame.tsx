import type { Diagnosis, Finding } from "../../api/types";
import { cleanText } from "../../format";
import { t } from "../../i18n";
import { view } from "../../state/store";
import { gpuList, manyHosts } from "../../ui/gpu";
import { Icon } from "../../ui/Icon";

/** Findings that name GPUs that keep others waiting. */
export const blaming = ({ findings }: Diagnosis): Finding[] => findings.filter(({ victims }) => victims.length > 0);

/** Who is the culprit and who only waits for it, as the findings have it. */
export function Blame({ result }: { result: Diagnosis }) {
  const found = blaming(result);
  const hosts = manyHosts(result.devices);
  const total = result.devices.length;
  if (total < 2) return <p class="state">{t("gpus_single")}</p>;
  if (!found.length) return <p class="sentence">{t("gpus_no_culprit")}</p>;
  return (
    <ul class="blame">
      {found.map((finding, i) => (
        <li key={`${finding.kind}|${i}`} class={`card card-${finding.severity}`}>
          <p>
            <Icon name={finding.severity} /> <strong>{cleanText(finding.title)}</strong>
          </p>
          <p>
            {t("gpus_culprit", { gpus: gpuList(finding.gpus, total, hosts) })} ·{" "}
            {t("gpus_victims", { gpus: gpuList(finding.victims, total, hosts) })}
          </p>
          <button
            type="button"
            class="quiet"
            onClick={() => {
              view.value = "verdict";
            }}
          >
            {t("gpus_to_finding")}
          </button>
        </li>
      ))}
    </ul>
  );
}
