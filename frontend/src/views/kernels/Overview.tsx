import { useState } from "preact/hooks";
import { type FillingAnswer, fillingResource, type KernelDevice, type KernelsAnswer } from "../../api/kernels";
import { FAMILIES, familyCategory, TENSOR_CLASSES, tensorCategory } from "../../charts/families";
import { drawHeat, type HeatMark, heatHeight } from "../../charts/heatmap";
import { Plot } from "../../charts/Plot";
import { drawShares, type ShareMark, type ShareRow, sharesHeight } from "../../charts/shares";
import { formatInt, formatMeasured, formatPercent } from "../../format";
import { lang, plural, t, tId } from "../../i18n";
import { useResource } from "../../state/resource";
import { gpuName, manyHosts } from "../../ui/gpu";
import { ScaleBar } from "../../ui/ScaleBar";
import { Legend } from "../../ui/Swatch";
import { Term } from "../../ui/Term";
import { efficiencySentence, occupancySentence, tensorShare } from "./words";

const FEW = 8;
const LABEL = 70;
const LABEL_WITH_HOST = 190;

interface SharesProps {
  name: string;
  title: string;
  summary: string;
  hint: string;
  devices: readonly KernelDevice[];
  hosts: boolean;
  categories: readonly string[];
  /** Milliseconds of each category; null where that is unknown for the GPU. */
  parts: (device: KernelDevice) => Record<string, number> | null;
}

/** How a time of each GPU divides. */
function Shares({ name, title, summary, hint, devices, hosts, categories, parts }: SharesProps) {
  const [all, setAll] = useState(false);
  const shown = all ? devices : devices.slice(0, FEW);
  const present = categories.filter((category) => devices.some((device) => (parts(device)?.[category] ?? 0) > 0));
  const rows = shown.map((device): ShareRow => {
    const ms = parts(device) ?? {};
    const whole = categories.reduce((sum, category) => sum + (ms[category] ?? 0), 0);
    return {
      label: gpuName(device, hosts),
      whole,
      parts: present.map((category) => ({ category, value: ms[category] ?? 0 })),
      text: [
        gpuName(device, hosts),
        ...present
          .filter((category) => ms[category])
          .map(
            (category) =>
              `${tId("category", category)}: ${formatMeasured(ms[category])} (${formatPercent(ms[category] / whole)})`,
          ),
      ].join("\n"),
    };
  });
  return (
    <>
      <Plot<ShareMark>
        name={name}
        title={title}
        summary={summary}
        tools={<Term text={hint}>{t("definition")}</Term>}
        height={sharesHeight(rows.length)}
        depends={[devices, all, hosts, lang.value]}
        draw={(scene) => drawShares(scene, rows, hosts ? LABEL_WITH_HOST : LABEL)}
        categories={present}
        legend={<Legend categories={present} />}
      />
      {devices.length > FEW ? (
        <button type="button" class="quiet" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t("show_fewer") : plural("show_all_gpus", devices.length)}
        </button>
      ) : null}
    </>
  );
}

const prefixed = (ms: Record<string, number>, name: (id: string) => string): Record<string, number> =>
  Object.fromEntries(Object.entries(ms).map(([id, value]) => [name(id), value]));

/** The families that take most of the time, in words. */
function familiesSentence(devices: readonly KernelDevice[]): string {
  const sums = new Map<string, number>();
  for (const { families_ms } of devices) {
    for (const [family, ms] of Object.entries(families_ms)) sums.set(family, (sums.get(family) ?? 0) + ms);
  }
  const total = [...sums.values()].reduce((sum, ms) => sum + ms, 0);
  if (!total) return "";
  const list = [...sums]
    .filter(([, ms]) => ms > 0)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 3)
    .map(([family, ms]) => `${tId("category", familyCategory(family))} ${formatPercent(ms / total)}`);
  return t("kernels_families_sentence", { list: list.join(", ") });
}

function tensorSentence(devices: readonly KernelDevice[]): string {
  const share = tensorShare(devices);
  if (share && share.unknown > 0.99) return t("tensor_all_unknown");
  if (share) {
    const told = t("tensor_sentence", { share: formatPercent(share.used) });
    return share.unknown < 0.005
      ? told
      : `${told} ${t("tensor_some_unknown", { share: formatPercent(share.unknown) })}`;
  }
  return devices.some(({ tensor_cores_ms }) => tensor_cores_ms) ? t("tensor_none") : t("tensor_unknown_gpu");
}

/** How much of the GPU each step filled. */
function Filling({
  answer,
  devices,
  hosts,
}: {
  answer: FillingAnswer;
  devices: readonly KernelDevice[];
  hosts: boolean;
}) {
  const values = answer.devices.map((_, column) => answer.sm_efficiency.map((row) => row[column] ?? null));
  const known = values.flat().filter((value): value is number => value !== null);
  if (!answer.steps.length || !known.length) return null;
  const names = answer.devices.map((device) => (devices[device] ? gpuName(devices[device], hosts) : String(device)));
  const [low, high] = [formatPercent(Math.min(...known)), formatPercent(Math.max(...known))];
  return (
    <>
      <Plot<HeatMark>
        name="kernels-filling"
        title={t("filling_title")}
        summary={t("filling_summary", { n: formatInt(answer.steps.length), low, high })}
        tools={<Term id="efficiency">{t("definition")}</Term>}
        height={heatHeight(names.length)}
        depends={[answer, hosts, lang.value]}
        draw={(scene) =>
          drawHeat(
            scene,
            {
              rows: names,
              columns: answer.steps.map(String),
              values,
              most: 1,
              text: (row, column) =>
                [
                  `${names[row]} · ${t("step_n", { n: answer.steps[column] })}`,
                  `${t("efficiency")}: ${formatPercent(values[row][column])}`,
                  `${t("occupancy")}: ${formatPercent(answer.occupancy[column]?.[row])}`,
                ].join("\n"),
            },
            hosts ? LABEL_WITH_HOST : LABEL,
          )
        }
        legendText={`${t("efficiency")}: 0–100 %`}
      />
      <ScaleBar label={t("efficiency")} low={formatPercent(0)} high={formatPercent(1)} />
    </>
  );
}

/** What the kernels are, how well they fill the GPU and whether tensor cores do the mathematics. */
export function Overview({ answer }: { answer: KernelsAnswer }) {
  const { devices } = answer;
  const hosts = manyHosts(devices);
  const filling = useResource(fillingResource).data;
  const families = familiesSentence(devices);
  const tensor = tensorSentence(devices);
  const busy = devices.filter(({ kernel_ms }) => kernel_ms > 0);
  const math = busy.filter(({ tensor_cores_ms: ms }) => ms && ms.used + ms.unused + ms.not_eligible + ms.unknown > 0);
  return (
    <>
      <Shares
        name="kernel-families"
        title={t("kernels_families")}
        summary={families}
        hint={t("kernel_family_hint")}
        devices={busy}
        hosts={hosts}
        categories={FAMILIES.map(familyCategory)}
        parts={(device) => prefixed(device.families_ms, familyCategory)}
      />
      <p class="sentence">{families}</p>
      {math.length ? (
        <Shares
          name="tensor-cores"
          title={t("tensor_title")}
          summary={tensor}
          hint={t("kernel_tensor_hint")}
          devices={math}
          hosts={hosts}
          categories={TENSOR_CLASSES.map(tensorCategory)}
          parts={(device) => device.tensor_cores_ms && prefixed(device.tensor_cores_ms, tensorCategory)}
        />
      ) : null}
      <p class="sentence">{tensor}</p>
      {filling ? <Filling answer={filling} devices={devices} hosts={hosts} /> : null}
      <p class="sentence">
        {occupancySentence(answer, hosts)} {efficiencySentence(devices)}
      </p>
    </>
  );
}
