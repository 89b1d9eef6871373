import { useMemo } from "preact/hooks";
import { type KernelRow, type KernelsAnswer, kernelTables } from "../../api/kernels";
import type { ProfileId } from "../../api/types";
import { t } from "../../i18n";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Answer, Section } from "../../ui/Section";
import type { ViewProps } from "../viewProps";
import { Chosen } from "./Chosen";
import { Fusion } from "./Fusion";
import { Overview } from "./Overview";
import { Scatter } from "./Scatter";
import { kernelBy, kernelChosen, kernelDevice } from "./state";
import { KernelTable } from "./Table";
import { Tree } from "./Tree";
import { chosenRow, rowsOfDevice } from "./words";

function Filters({ answer }: { answer: KernelsAnswer }) {
  const hosts = manyHosts(answer.devices);
  if (answer.devices.length < 2) return null;
  return (
    <div class="filters">
      <label>
        {t("kernel_rows")}
        <select
          value={kernelBy.value}
          onChange={(event) => {
            kernelBy.value = event.currentTarget.value === "gpu" ? "gpu" : "kernel";
          }}
        >
          <option value="kernel">{t("kernel_rows_kernel")}</option>
          <option value="gpu">{t("kernel_rows_gpu")}</option>
        </select>
      </label>
      <label>
        {t("gpu")}
        <select
          value={kernelDevice.value === null ? "" : String(kernelDevice.value)}
          onChange={(event) => {
            const { value } = event.currentTarget;
            kernelDevice.value = value === "" ? null : Number(value);
          }}
        >
          <option value="">{t("gpus_every")}</option>
          {answer.devices.map((device, i) => (
            <option key={`${device.host}|${device.id}`} value={String(i)}>
              {gpuName(device, hosts)}
            </option>
          ))}
        </select>
      </label>
      {kernelBy.value === "kernel" && kernelDevice.value !== null ? (
        <span class="muted">{t("kernel_rows_mixed")}</span>
      ) : null}
    </div>
  );
}

function Kernels({ answer, profile }: { answer: KernelsAnswer; profile: ProfileId }) {
  const device = kernelDevice.value;
  const rows = useMemo(() => rowsOfDevice(answer.rows, device), [answer, device]);
  const chosen = chosenRow(rows, kernelChosen.value);
  const choose = (row: KernelRow) => {
    kernelChosen.value = row.id;
  };
  if (!answer.rows.length) return <p class="state">{t("kernels_none")}</p>;
  return (
    <>
      <Overview answer={answer} />
      <h3 class="apart">{t("kernels_each")}</h3>
      <Filters answer={answer} />
      <Scatter rows={rows} chosen={chosen} choose={choose} />
      {chosen ? <Chosen answer={answer} row={chosen} profile={profile} /> : null}
      <h3 class="apart">{t("kernels_table")}</h3>
      <KernelTable answer={answer} rows={rows} profile={profile} chosen={chosen} choose={choose} />
    </>
  );
}

/** Every kernel of the recording: which waste the chip, what limits each, and what would help. */
export function KernelsView({ profile }: ViewProps) {
  const resource = kernelTables[kernelBy.value];
  const chooseByName = (name: string) => {
    const row = resource.remote.peek().data?.rows.find((each) => each.name === name);
    if (!row) return;
    kernelChosen.value = row.id;
    document.getElementById("kernel-chosen")?.scrollIntoView({ block: "center" });
  };
  return (
    <>
      <Section id="kernels" title={t("kernels_title")} lead={t("kernels_lead")}>
        <Answer resource={resource} label={t("loading_kernels")}>
          {(answer) => <Kernels answer={answer} profile={profile} />}
        </Answer>
      </Section>
      <Section id="kernel-tree" title={t("tree_title")} lead={t("tree_lead")}>
        <Tree profile={profile} onKernel={chooseByName} />
      </Section>
      <Section id="fusion" title={t("fusion_title")} lead={t("fusion_lead")}>
        <Answer resource={resource} label={t("loading_kernels")}>
          {({ devices }) => <Fusion devices={devices} />}
        </Answer>
      </Section>
    </>
  );
}
