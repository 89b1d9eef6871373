import { useState } from "preact/hooks";
import type { DeviceResult, Diagnosis } from "../../api/types";
import { CAUSES, cssBackground, isWork, WORK } from "../../charts/palette";
import { formatMeasured, formatPercent, fullText, shorten } from "../../format";
import { plural, t, tId } from "../../i18n";
import { dark } from "../../state/host";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Definitions, Legend } from "../../ui/Swatch";

export interface Part {
  category: string;
  ms: number;
  share: number;
}

/** A GPU's window by what filled it, in the order of the legend; idle time that has no cause in the data counts as such. */
export function partsOf(device: DeviceResult): Part[] {
  const wall = device.wall_ms ?? 0;
  if (wall <= 0) return [];
  const times: [string, number][] = [
    ["compute", device.compute_ms ?? 0],
    ["communication", device.communication_ms ?? 0],
    ["transfer", device.transfer_ms ?? 0],
  ];
  let explained = 0;
  const known = new Set<string>(CAUSES);
  for (const cause of [...CAUSES, ...Object.keys(device.idle_by_cause_ms).filter((id) => !known.has(id))]) {
    const ms = device.idle_by_cause_ms[cause] ?? 0;
    explained += ms;
    if (ms > 0) times.push([cause, ms]);
  }
  const rest = (device.idle_ms ?? 0) - explained;
  if (rest > wall * 1e-6) {
    const row = times.find(([category]) => category === "no_evidence");
    if (row) row[1] += rest;
    else times.push(["no_evidence", rest]);
  }
  return times.filter(([, ms]) => ms > 0).map(([category, ms]) => ({ category, ms, share: ms / wall }));
}

/** Categories that some GPU has, in the order of the legend. */
export function presentCategories(devices: readonly DeviceResult[]): string[] {
  const present = new Set(devices.flatMap((device) => partsOf(device).map((part) => part.category)));
  const order: string[] = [...WORK, ...CAUSES];
  return [...order.filter((id) => present.has(id)), ...[...present].filter((id) => !order.includes(id))];
}

/** Below this share of a GPU's window a part is no wider than a pixel: it is in the numbers, not in the picture. */
const SEEN = 0.001;

/** Categories that can be seen in a bar, and those that are too small everywhere. */
export function seenCategories(devices: readonly DeviceResult[]): { seen: string[]; tiny: string[] } {
  const large = new Set(
    devices.flatMap((device) => partsOf(device).flatMap((part) => (part.share >= SEEN ? [part.category] : []))),
  );
  const present = presentCategories(devices);
  return { seen: present.filter((id) => large.has(id)), tiny: present.filter((id) => !large.has(id)) };
}

/** The sentence under the picture: how much was computed, and what took most of the rest. */
export function accountingSentence(devices: readonly DeviceResult[]): string {
  const counted = devices.filter((device) => device.wall_ms);
  if (!counted.length) return t("accounting_none");
  const mean = new Map<string, number>();
  for (const device of counted) {
    for (const part of partsOf(device)) {
      mean.set(part.category, (mean.get(part.category) ?? 0) + part.share / counted.length);
    }
  }
  const compute = mean.get("compute") ?? 0;
  mean.delete("compute");
  const [largest] = [...mean].sort((a, b) => b[1] - a[1]);
  const first = t("accounting_compute", { share: formatPercent(compute) });
  if (!largest || largest[1] < 0.005) return first;
  return `${first} ${t("accounting_loss", { what: tId("category", largest[0]).toLowerCase(), share: formatPercent(largest[1]) })}`;
}

const idleOf = (device: DeviceResult): Part | undefined =>
  device.idle_ms && device.wall_ms
    ? { category: "idle", ms: device.idle_ms, share: device.idle_ms / device.wall_ms }
    : undefined;

/** A cause without the word that says that it is one of idle time. */
const shortName = (category: string): string => {
  const name = tId("category", category).replace(`${t("category_idle")}: `, "");
  return name.charAt(0).toLowerCase() + name.slice(1);
};

const FEW = 16;

function Bar({ device, hosts }: { device: DeviceResult; hosts: boolean }) {
  const parts = partsOf(device).filter((part) => part.share >= SEEN);
  const label = parts.map((part) => `${tId("category", part.category)} ${formatPercent(part.share)}`).join(", ");
  const name = gpuName(device, hosts);
  return (
    <div class="bar-row">
      <span class="bar-name" title={fullText([device.host, device.name].filter(Boolean).join(" · "))}>
        {name}
      </span>
      {parts.length ? (
        <div class="bar" role="img" aria-label={`${name}: ${label}`}>
          {parts.map((part) => (
            <span
              key={part.category}
              class={part.share >= 0.006 ? "bar-part bar-wide" : "bar-part"}
              title={`${tId("category", part.category)}: ${formatMeasured(part.ms)} · ${formatPercent(part.share)}`}
              style={{ flexGrow: part.share * 1000, background: cssBackground(part.category, dark.value) }}
            >
              <span class="bar-value">{formatPercent(part.share)}</span>
            </span>
          ))}
        </div>
      ) : (
        <span class="muted">{t("accounting_idle_gpu")}</span>
      )}
    </div>
  );
}

function Table({
  devices,
  categories,
  hosts,
}: {
  devices: readonly DeviceResult[];
  categories: string[];
  hosts: boolean;
}) {
  const causes = categories.filter((category) => !isWork(category));
  // All idle time, then what it is made of.
  const columns = [...categories.filter(isWork), ...(causes.length ? ["idle"] : []), ...causes];
  const waits = devices.some((device) => device.communication_wait_ms !== null);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region needs the keyboard
    <section class="table-scroll" tabIndex={0} aria-label={t("accounting_table")}>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("gpu")}</th>
            <th scope="col" class="number">
              {t("window")}
            </th>
            {columns.map((category) => (
              <th scope="col" key={category} class="number" title={tId("category_hint", category)}>
                {causes.includes(category) ? shortName(category) : tId("category", category)}
              </th>
            ))}
            {waits ? (
              <th scope="col" class="number">
                {t("accounting_wait")}
              </th>
            ) : null}
            <th scope="col" class="number">
              {t("occupancy")}
            </th>
          </tr>
        </thead>
        <tbody>
          {devices.map((device) => {
            const parts = new Map(partsOf(device).map((part) => [part.category, part]));
            return (
              <tr key={`${device.host}|${device.id}`}>
                <th scope="row">{gpuName(device, hosts)}</th>
                <td class="number">{formatMeasured(device.wall_ms)}</td>
                {columns.map((category) => {
                  const part = category === "idle" ? idleOf(device) : parts.get(category);
                  return (
                    <td key={category} class="number">
                      {part ? `${formatMeasured(part.ms)} · ${formatPercent(part.share)}` : "0"}
                    </td>
                  );
                })}
                {waits ? <td class="number">{formatMeasured(device.communication_wait_ms)}</td> : null}
                <td class="number">{formatPercent(device.occupancy)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

/** A bar for each GPU, a few of them first. */
export function Bars({ devices }: { devices: readonly DeviceResult[] }) {
  const [all, setAll] = useState(false);
  const hosts = manyHosts(devices);
  const shown = all ? devices : devices.slice(0, FEW);
  return (
    <>
      <div class="bars">
        {shown.map((device) => (
          <Bar key={`${device.host}|${device.id}`} device={device} hosts={hosts} />
        ))}
      </div>
      {devices.length > FEW ? (
        <button type="button" class="quiet" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t("show_fewer") : plural("show_all_gpus", devices.length)}
        </button>
      ) : null}
    </>
  );
}

/** Where each GPU's window went: bars, a sentence, and the numbers. */
export function Accounting({ result }: { result: Diagnosis }) {
  const { devices } = result;
  const hosts = manyHosts(devices);
  const categories = presentCategories(devices);
  const { seen, tiny } = seenCategories(devices);
  const note = tiny.length ? t("accounting_tiny", { list: tiny.map(shortName).join(", ") }) : "";
  return (
    <>
      <Bars devices={devices} />
      <Legend categories={seen} note={note} />
      <p class="sentence">{shorten(accountingSentence(devices), 400)}</p>
      {categories.length ? (
        <>
          <details>
            <summary>{t("accounting_table")}</summary>
            <Table devices={devices} categories={categories} hosts={hosts} />
          </details>
          <Definitions categories={categories} />
        </>
      ) : null}
    </>
  );
}
