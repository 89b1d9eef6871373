import { useMemo, useState } from "preact/hooks";
import { collectivesResource } from "../../api/collectives";
import type { DeviceResult, Diagnosis } from "../../api/types";
import { categoryFill } from "../../charts/canvas";
import { CAUSES, cssBackground, isWork } from "../../charts/palette";
import { savePng } from "../../charts/png";
import { themeOf } from "../../charts/theme";
import { formatMeasured, formatPercent, fullText, shorten } from "../../format";
import { plural, t, tId } from "../../i18n";
import { dark } from "../../state/host";
import { textParam } from "../../state/params";
import { useResource } from "../../state/resource";
import { type Column, DataTable } from "../../ui/DataTable";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Icon } from "../../ui/Icon";
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
  const communication = device.communication_ms ?? 0;
  const wait = Math.min(device.exposed_wait_ms ?? 0, communication);
  const times: [string, number][] = [
    ["compute", device.compute_ms ?? 0],
    ["communication", communication - wait],
    ["communication_wait", wait],
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

const WAIT = "communication_wait";

/** Categories that some GPU has, in the order of the legend. */
export function presentCategories(devices: readonly DeviceResult[]): string[] {
  const present = new Set(devices.flatMap((device) => partsOf(device).map((part) => part.category)));
  const order: string[] = ["compute", "communication", WAIT, "transfer", ...CAUSES];
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

const accountingSort = textParam("accounting_sort", "gpu", { ofProfile: false });

interface TableProps {
  devices: readonly DeviceResult[];
  categories: string[];
  hosts: boolean;
}

function Table({ devices, categories, hosts }: TableProps) {
  const busy = (category: string) => isWork(category) || category === WAIT;
  const causes = categories.filter((category) => !busy(category));
  // All idle time, then what it is made of.
  const order = [...categories.filter(busy), ...(causes.length ? ["idle"] : []), ...causes];
  const partOf = (device: DeviceResult, category: string): Part | undefined =>
    category === "idle" ? idleOf(device) : partsOf(device).find((part) => part.category === category);
  const ms = (key: "wall_ms" | "communication_wait_ms", label: string, hint: string): Column<DeviceResult> => ({
    key,
    label,
    hint,
    csvLabel: key,
    number: true,
    value: (device) => device[key],
    cell: (device) => formatMeasured(device[key]),
  });
  const columns: Column<DeviceResult>[] = [
    {
      key: "gpu",
      label: t("gpu"),
      value: (device) => devices.indexOf(device),
      csv: (device) => gpuName(device, hosts),
      cell: (device) => gpuName(device, hosts),
    },
    ms("wall_ms", t("window"), t("window_hint")),
    ...order.map(
      (category): Column<DeviceResult> => ({
        key: category,
        label: causes.includes(category) ? shortName(category) : tId("category", category),
        hint: tId("category_hint", category),
        csvLabel: `${category}_ms`,
        number: true,
        value: (device) => partOf(device, category)?.ms ?? 0,
        cell: (device) => {
          const part = partOf(device, category);
          return part ? `${formatMeasured(part.ms)} · ${formatPercent(part.share)}` : "0";
        },
      }),
    ),
    ...(!categories.includes(WAIT) && devices.some((device) => device.communication_wait_ms !== null)
      ? [ms("communication_wait_ms", t("accounting_wait"), t("term_collective_wait"))]
      : []),
    {
      key: "occupancy",
      label: t("occupancy"),
      hint: t("occupancy_hint"),
      number: true,
      value: (device) => device.occupancy,
      cell: (device) => formatPercent(device.occupancy),
    },
  ];
  return (
    <DataTable
      name="accounting"
      label={t("accounting_table")}
      rows={devices}
      columns={columns}
      order={accountingSort}
      tallest={480}
    />
  );
}

const ROW = 34;
const BAR = 26;

/** The bars as a picture. */
function savePicture(devices: readonly DeviceResult[], categories: readonly string[]): void {
  const theme = themeOf(dark.peek());
  const hosts = manyHosts(devices);
  const left = hosts ? 220 : 70;
  savePng({
    name: "accounting",
    title: t("accounting_title"),
    width: 1100,
    height: ROW * devices.length,
    theme,
    legend: categories.map((category) => ({
      fill: (context) => categoryFill(context, category, theme),
      label: tId("category", category),
    })),
    draw: ({ context, width }) => {
      for (const [i, device] of devices.entries()) {
        context.fillStyle = theme.text;
        context.fillText(gpuName(device, hosts), 0, i * ROW + BAR / 2, left - 8);
        let x = left;
        for (const part of partsOf(device)) {
          const size = part.share * (width - left);
          context.fillStyle = categoryFill(context, part.category, theme);
          context.fillRect(x, i * ROW, size, BAR);
          if (size > 48) {
            const label = formatPercent(part.share);
            context.fillStyle = theme.surface;
            context.fillRect(x + 4, i * ROW + 4, context.measureText(label).width + 10, BAR - 8);
            context.fillStyle = theme.text;
            context.fillText(label, x + 9, i * ROW + BAR / 2);
          }
          x += size;
        }
      }
    },
  });
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
  const collectives = useResource(collectivesResource).data;
  // Dependencies: how communication divides comes later than the rest, or never.
  const devices = useMemo(
    () =>
      result.devices.map((device) => {
        const found = collectives?.gpus.find(({ host, gpu }) => host === device.host && gpu === device.id);
        return { ...device, exposed_wait_ms: found?.waiting_ms ?? null };
      }),
    [result, collectives],
  );
  const hosts = manyHosts(devices);
  const categories = presentCategories(devices);
  const { seen, tiny } = seenCategories(devices);
  const note = tiny.length ? t("accounting_tiny", { list: tiny.map(shortName).join(", ") }) : "";
  return (
    <>
      <Bars devices={devices} />
      <div class="legend-row">
        <Legend categories={seen} note={note} />
        <button type="button" class="quiet save" onClick={() => savePicture(devices, seen)}>
          <Icon name="save" />
          PNG
          <span class="hidden"> {t("accounting_title")}</span>
        </button>
      </div>
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
