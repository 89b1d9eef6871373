import { useEffect, useRef, useState } from "preact/hooks";
import { fetchLaneTelemetry, isSimulated, type LaneTelemetry } from "../../api/timelineTelemetry";
import type { ProfileId, TimelineMeta } from "../../api/types";
import { prepare } from "../../charts/canvas";
import { lineStyle, themeOf } from "../../charts/theme";
import { length, type Range } from "../../charts/viewport";
import { formatBytes, formatNumber } from "../../format";
import { lang, t } from "../../i18n";
import { dark } from "../../state/host";
import { choiceParam } from "../../state/params";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Term } from "../../ui/Term";

const METRICS = [
  "sm_clock_mhz",
  "power_watts",
  "temperature_celsius",
  "utilization_percent",
  "memory_used_bytes",
] as const;
type Metric = (typeof METRICS)[number];
const UNITS: Record<Metric, string> = {
  sm_clock_mhz: "MHz",
  power_watts: "W",
  temperature_celsius: "°C",
  utilization_percent: "%",
  memory_used_bytes: "B",
};
const nvmlMetric = choiceParam("nvml", METRICS, { ofProfile: false });

const HEIGHT = 92;
const BAND = 4;
const MOST_BANDS = 8;
const REST_MS = 200;

export const showValue = (metric: Metric, value: number): string =>
  metric === "memory_used_bytes" ? formatBytes(value) : `${formatNumber(value)} ${UNITS[metric]}`;

/** Which values were recorded beside the profile; empty without any. Asked once a profile. */
function useOffered(profile: ProfileId, meta: TimelineMeta): { metrics: Metric[]; simulated: boolean } {
  const [offered, setOffered] = useState<{ metrics: Metric[]; simulated: boolean }>({ metrics: [], simulated: false });
  useEffect(() => {
    const controller = new AbortController();
    const options = { signal: controller.signal };
    const ask = async () => {
      const all = METRICS.join(",");
      const { lanes } = await fetchLaneTelemetry(profile, all, meta.start_ps, meta.end_ps + 1, 2, options);
      const metrics = METRICS.filter((metric) => lanes.some((line) => line.metric === metric));
      const simulated = metrics.length > 0 && (await isSimulated(profile, lang.peek(), options));
      setOffered({ metrics, simulated });
    };
    ask().catch(() => undefined); // an extra: most profiles have nothing recorded beside them
    return () => controller.abort();
  }, [profile, meta]);
  return offered;
}

function useTelemetry(profile: ProfileId, metric: Metric | undefined, range: Range, width: number) {
  const [answer, setAnswer] = useState<LaneTelemetry | null>(null);
  useEffect(() => {
    if (!metric || !width) return;
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const points = Math.max(2, Math.min(2000, Math.round(width)));
        const options = { signal: controller.signal };
        setAnswer(await fetchLaneTelemetry(profile, metric, range.start, range.end, points, options));
      } catch {
        // What was drawn before stays.
      }
    }, REST_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [profile, metric, range.start, range.end, width > 0]);
  return answer;
}

interface NvmlLanesProps {
  profile: ProfileId;
  meta: TimelineMeta;
  range: Range;
  width: number;
  scale: number;
}

/** What NVML said of each GPU, under the timeline and on its axis. */
export function NvmlLanes({ profile, meta, range, width, scale }: NvmlLanesProps) {
  const { metrics, simulated } = useOffered(profile, meta);
  const metric = metrics.includes(nvmlMetric.value) ? nvmlMetric.value : metrics[0];
  const canvas = useRef<HTMLCanvasElement>(null);
  const answer = useTelemetry(profile, metric, range, width);
  const isDark = dark.value;
  const lines = answer?.lanes.filter((line) => line.metric === metric) ?? [];
  const values = lines.flatMap(({ mean, max }) => [...mean, ...(max ?? [])]).filter((value) => value !== null);
  const most = values.length ? Math.max(...values) * 1.08 : 1;
  useEffect(() => {
    const context = canvas.current && width ? prepare(canvas.current, width, HEIGHT, scale) : null;
    if (!context || !answer) return;
    const theme = themeOf(isDark);
    context.clearRect(0, 0, width, HEIGHT);
    const bands = answer.bands.slice(0, 5000);
    const bottom = HEIGHT - 2 - (bands.length ? Math.min(lines.length, MOST_BANDS) * (BAND + 1) : 0);
    const toX = (ps: number) => ((ps - range.start) / length(range)) * width;
    const toY = (value: number) => bottom - (value / most) * (bottom - 4);
    context.strokeStyle = theme.line;
    context.lineWidth = 1;
    context.strokeRect(0.5, 0.5, width - 1, bottom - 0.5);
    for (const line of lines) {
      const offset = meta.lanes.find(({ id }) => id === line.lane)?.offset_ps ?? 0;
      const { color, dash } = lineStyle(line.lane, isDark);
      context.strokeStyle = color;
      context.lineWidth = 1.75;
      context.setLineDash(dash);
      context.beginPath();
      let pen = false;
      for (const [i, time] of line.time_ps.entries()) {
        const value = line.mean[i];
        if (value === null) {
          pen = false;
          continue;
        }
        // Far outside of the canvas a line's ends are cut, or they would be drawn wrong.
        const x = Math.min(Math.max(toX(time + offset), -1e5), 1e5);
        if (pen) context.lineTo(x, toY(value));
        else context.moveTo(x, toY(value));
        pen = true;
      }
      context.stroke();
    }
    context.setLineDash([]);
    for (const band of bands) {
      const row = lines.findIndex(({ lane }) => lane === band.lane);
      if (row < 0 || row >= MOST_BANDS) continue;
      const offset = meta.lanes.find(({ id }) => id === band.lane)?.offset_ps ?? 0;
      const left = Math.max(0, toX(band.start_ps + offset));
      const right = Math.min(width, toX(band.end_ps + offset));
      context.fillStyle = band.kind === "thermal" ? theme.accent : band.kind === "power" ? "#d08700" : theme.muted;
      if (right > 0 && left < width)
        context.fillRect(left, bottom + 2 + row * (BAND + 1), Math.max(right - left, 1.5), BAND);
    }
  }, [answer, range.start, range.end, width, scale, isDark, most, meta]);
  if (!metric || !answer?.lanes.length) return null;
  const hosts = manyHosts(meta.lanes.map(({ host, gpu }) => ({ host, id: gpu })));
  const nameOf = (id: number) => {
    const lane = meta.lanes.find((each) => each.id === id);
    return lane ? gpuName({ host: lane.host, id: lane.gpu }, hosts) : String(id);
  };
  const last = (line: (typeof lines)[number]): string => {
    const known = line.mean.filter((value): value is number => value !== null);
    return known.length ? showValue(metric, known.reduce((sum, value) => sum + value, 0) / known.length) : "–";
  };
  const summary = lines.map((line) => `${nameOf(line.lane)}: ${last(line)}`).join("; ");
  return (
    <div class="nvml">
      <div class="tl-head">
        <span class="tl-steps-label nvml-label">
          <span>{showValue(metric, most)}</span>
          <span>0</span>
        </span>
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${t("nvml_title")}. ${t(`nvml_${metric}`)}: ${summary}`}
          style={{ width: `${width}px`, height: `${HEIGHT}px` }}
        />
      </div>
      <div class="filters">
        <label class="tool">
          {t("nvml_title")}
          <select
            value={metric}
            onChange={(event) => {
              nvmlMetric.value = METRICS.find((each) => each === event.currentTarget.value) ?? "sm_clock_mhz";
            }}
          >
            {metrics.map((each) => (
              <option key={each} value={each}>
                {t(`nvml_${each}`)}
              </option>
            ))}
          </select>
        </label>
        <ul class="legend">
          {lines.slice(0, 16).map((line) => (
            <li key={line.lane}>
              <span
                class="line-swatch"
                aria-hidden="true"
                style={{
                  borderTopColor: lineStyle(line.lane, isDark).color,
                  borderTopStyle: lineStyle(line.lane, isDark).dash.length ? "dashed" : "solid",
                }}
              />
              {nameOf(line.lane)} <span class="muted">{last(line)}</span>
            </li>
          ))}
        </ul>
        {answer.bands.length ? <Term text={t("nvml_bands_hint")}>{t("nvml_bands")}</Term> : null}
        {simulated ? <strong>{t("nvml_simulated")}</strong> : null}
      </div>
    </div>
  );
}
