import { useEffect, useMemo } from "preact/hooks";
import { fetchRange, type RangeAnswer } from "../../api/timelineRange";
import type { DeviceResult, ProfileId, TimelineMeta } from "../../api/types";
import { CAUSES, isWork } from "../../charts/palette";
import { formatDuration, formatInt, formatMeasured, formatPercent, formatRange, shorten } from "../../format";
import { t, tId } from "../../i18n";
import { textParam } from "../../state/params";
import { Remote } from "../../state/remote";
import { PS_PER_MS } from "../../state/timelineView";
import { type Column, DataTable, titleOf } from "../../ui/DataTable";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Failed, Loading } from "../../ui/Section";
import { Legend } from "../../ui/Swatch";
import { Bars, seenCategories } from "../verdict/Accounting";
import { selectionPs, setSelection } from "./state";

const answers = new Remote<RangeAnswer>();
const rangeSort = textParam("range_sort", "gpu", { ofProfile: false });

/** A lane's share of the stretch in the form in which the accounting is drawn. */
export function deviceOf(meta: TimelineMeta, lane: RangeAnswer["lanes"][number]): DeviceResult {
  const { host, gpu, name } = meta.lanes[lane.lane];
  const wall = Object.values(lane.ms).reduce((sum, ms) => sum + ms, 0);
  const idle = Object.entries(lane.ms).filter(([category]) => !isWork(category));
  return {
    host,
    id: gpu,
    rank: null,
    name,
    wall_ms: wall,
    compute_ms: lane.ms.compute ?? 0,
    communication_ms: lane.ms.communication ?? 0,
    communication_wait_ms: null,
    exposed_wait_ms: lane.communication_wait_ms,
    transfer_ms: lane.ms.transfer ?? 0,
    idle_ms: idle.reduce((sum, [, ms]) => sum + ms, 0),
    idle_by_cause_ms: Object.fromEntries(idle),
    occupancy: null,
  };
}

/** The accounting of the stretch that was chosen. */
export function RangePanel({ profile, meta }: { profile: ProfileId; meta: TimelineMeta }) {
  const range = selectionPs();
  const start = range?.start;
  const end = range?.end;
  useEffect(() => {
    if (start === undefined || end === undefined) {
      answers.clear();
      return;
    }
    void answers.load((options) => fetchRange(profile, start, end, options), true);
  }, [profile, start, end]);
  const { status, data, error } = answers.value;
  const devices = useMemo(() => data?.lanes.map((lane) => deviceOf(meta, lane)) ?? [], [data, meta]);
  if (!range) return null;
  const hosts = manyHosts(devices);
  const used = [...(["compute", "communication", "transfer"] as const), ...CAUSES].filter((category) =>
    data?.lanes.some(({ ms }) => (ms[category] ?? 0) > 0),
  );
  type Row = RangeAnswer["lanes"][number];
  const share = (row: Row, ms: number) => {
    const wall = Object.values(row.ms).reduce((sum, value) => sum + value, 0);
    return ms ? `${formatMeasured(ms)} · ${formatPercent(ms / wall)}` : "0";
  };
  const columns: Column<Row>[] = [
    {
      key: "gpu",
      label: t("gpu"),
      value: (row) => row.lane,
      cell: (row) => gpuName({ host: meta.lanes[row.lane].host, id: meta.lanes[row.lane].gpu }, hosts),
      csv: (row) => gpuName({ host: meta.lanes[row.lane].host, id: meta.lanes[row.lane].gpu }, hosts),
    },
    ...used.map(
      (category): Column<Row> => ({
        key: category,
        label: tId("category", category),
        hint: tId("category_hint", category),
        csvLabel: `${category}_ms`,
        number: true,
        value: (row) => row.ms[category] ?? 0,
        cell: (row) => share(row, row.ms[category] ?? 0),
      }),
    ),
    {
      key: "wait",
      label: tId("category", "communication_wait"),
      hint: tId("category_hint", "communication_wait"),
      csvLabel: "communication_wait_ms",
      number: true,
      value: (row) => row.communication_wait_ms,
      cell: (row) => share(row, row.communication_wait_ms),
    },
  ];
  const { seen } = seenCategories(devices);
  return (
    <div class="range-panel" role="group" aria-label={t("timeline_range")}>
      <p class="story-head">
        <strong>{t("timeline_range")}</strong>
        <span class="range-readout">
          {formatRange(range.start / PS_PER_MS, range.end / PS_PER_MS)}{" "}
          <span class="muted">({formatDuration((range.end - range.start) / PS_PER_MS)})</span>
        </span>
        <button type="button" class="quiet" onClick={() => setSelection(null)}>
          {t("timeline_range_clear")}
        </button>
      </p>
      {status === "failed" && error ? <Failed error={error} /> : null}
      {status === "loading" && !data ? <Loading label={t("loading_details")} /> : null}
      {data ? (
        <div class={status === "loading" ? "stale" : undefined}>
          <Bars devices={devices} />
          <Legend categories={seen} />
          <details>
            <summary>{t("accounting_table")}</summary>
            <DataTable
              name="range"
              label={t("timeline_range")}
              rows={data.lanes}
              columns={columns}
              order={rangeSort}
              tallest={320}
            />
          </details>
          {data.kernels.length ? (
            <details>
              <summary>{t("timeline_range_kernels")}</summary>
              <ol class="range-kernels">
                {data.kernels.map((kernel) => (
                  <li key={kernel.name}>
                    <code title={titleOf(kernel.name)}>{shorten(kernel.name, 90)}</code>{" "}
                    {formatMeasured(kernel.total_ms)}{" "}
                    <span class="muted">{t("timeline_range_calls", { n: formatInt(kernel.calls) })}</span>
                  </li>
                ))}
              </ol>
            </details>
          ) : null}
        </div>
      ) : null}
    </div>
  );
}
