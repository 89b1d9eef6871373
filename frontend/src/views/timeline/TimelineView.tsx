import { t } from "../../i18n";
import { eventLimit, metaResource } from "../../state/store";
import { Answer, Section } from "../../ui/Section";
import type { ViewProps } from "../viewProps";
import { Timeline } from "./Timeline";

/** What every GPU did when. */
export function TimelineView({ profile }: ViewProps) {
  return (
    <Section id="timeline" title={t("timeline_title")}>
      <Answer resource={metaResource} label={t("loading_timeline")}>
        {(meta) => <Timeline profile={profile} meta={meta} limit={eventLimit.value} />}
      </Answer>
    </Section>
  );
}
