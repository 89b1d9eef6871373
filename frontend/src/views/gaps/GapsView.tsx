import { useEffect, useMemo } from "preact/hooks";
import { fetchGaps, type Gap, type GapsAnswer } from "../../api/gaps";
import type { ProfileId } from "../../api/types";
import { CAUSES } from "../../charts/palette";
import { t, tId } from "../../i18n";
import { Remote } from "../../state/remote";
import { revision, useResource } from "../../state/resource";
import { metaResource } from "../../state/store";
import { gpuName, manyHosts } from "../../ui/gpu";
import { Cancelled, Failed, Loading, Section } from "../../ui/Section";
import type { ViewProps } from "../viewProps";
import { GapHistogram } from "./GapHistogram";
import { GapStory } from "./GapStory";
import { GapTable } from "./GapTable";
import { gapCause, gapChosen, gapLane } from "./state";

const MOST = 1000;

const gaps = new Remote<GapsAnswer>();

export const gapKey = (gap: Gap): string => `${gap.lane}.${gap.start_ps}`;

function Filters() {
  const lanes = useResource(metaResource).data?.lanes ?? [];
  const hosts = manyHosts(lanes.map(({ host, gpu }) => ({ host, id: gpu })));
  return (
    <div class="filters">
      <label>
        {t("gaps_cause")}
        <select
          value={gapCause.value}
          onChange={(event) => {
            gapCause.value = event.currentTarget.value as typeof gapCause.value;
          }}
        >
          <option value="">{t("gaps_every_cause")}</option>
          {CAUSES.map((cause) => (
            <option key={cause} value={cause}>
              {tId("category", cause)}
            </option>
          ))}
        </select>
      </label>
      {lanes.length > 1 ? (
        <label>
          {t("gpu")}
          <select
            value={gapLane.value === null ? "" : String(gapLane.value)}
            onChange={(event) => {
              const { value } = event.currentTarget;
              gapLane.value = value === "" ? null : Number(value);
            }}
          >
            <option value="">{t("gpus_every")}</option>
            {lanes.map((lane) => (
              <option key={lane.id} value={String(lane.id)}>
                {gpuName({ host: lane.host, id: lane.gpu }, hosts)}
              </option>
            ))}
          </select>
        </label>
      ) : null}
    </div>
  );
}

function useGaps(profile: ProfileId) {
  const cause = gapCause.value;
  const lane = gapLane.value;
  const now = revision.value;
  const load = () => void gaps.load((options) => fetchGaps(profile, { cause, lane, limit: MOST }, options), true);
  useEffect(load, [profile, cause, lane, now]);
  // What another profile had must not show for a moment.
  useEffect(() => () => gaps.clear(), [profile]);
  return { ...gaps.value, load };
}

/** When nothing ran: how long, why, and the story of each gap. */
export function GapsView({ profile }: ViewProps) {
  const { status, data, error, progress, load } = useGaps(profile);
  const wanted = gapChosen.value;
  const chosen = useMemo(() => data?.gaps.find((gap) => gapKey(gap) === wanted) ?? data?.gaps[0], [data, wanted]);
  const hosts = manyHosts(data?.gaps.map(({ host, gpu }) => ({ host, id: gpu })) ?? []);
  return (
    <Section id="gaps" title={t("view_gaps")} lead={t("gaps_lead")}>
      {status === "failed" && error ? <Failed error={error} retry={load} /> : null}
      {status === "cancelled" ? <Cancelled resume={load} /> : null}
      {status === "loading" && !data ? (
        <Loading label={t("loading_gaps")} progress={progress} cancel={() => gaps.cancel()} />
      ) : null}
      {data && !data.total ? <p class="state good">{t("gaps_none")}</p> : null}
      {data?.total ? (
        <>
          <GapHistogram answer={data} />
          <h3 class="apart">{t("gaps_story")}</h3>
          {chosen ? <GapStory gap={chosen} hosts={hosts} /> : null}
          <h3 class="apart">{t("gaps_ranked")}</h3>
          <Filters />
          <div class={status === "loading" ? "stale" : undefined}>
            <GapTable
              answer={data}
              cause={gapCause.value}
              hosts={hosts}
              chosen={chosen}
              choose={(gap) => {
                gapChosen.value = gapKey(gap);
              }}
            />
          </div>
        </>
      ) : null}
    </Section>
  );
}
