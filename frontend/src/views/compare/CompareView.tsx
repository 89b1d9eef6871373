import { useEffect, useMemo } from "preact/hooks";
import { type Comparison, fetchComparison } from "../../api/compare";
import type { ProfileId } from "../../api/types";
import { cleanText } from "../../format";
import { lang, t } from "../../i18n";
import { Remote } from "../../state/remote";
import { revision } from "../../state/resource";
import { infoOf, sameProfile, sessions } from "../../state/store";
import { Cancelled, Failed, Loading, Section } from "../../ui/Section";
import type { ViewProps } from "../viewProps";
import { Beside } from "./Beside";
import { Change } from "./Change";
import { Choose } from "./Choose";
import { FindingChanges } from "./FindingChanges";
import { KernelChanges } from "./KernelChanges";
import { Outcome } from "./Outcome";
import { Parts } from "./Parts";
import { batchAfter, batchBefore, comparable, other, pairOf, sessionBefore, shownAs } from "./state";

const comparison = new Remote<Comparison>();

function Answer({ answer }: { answer: Comparison }) {
  return (
    <>
      <Outcome answer={answer} />
      <Change answer={answer} />
      <Parts answer={answer} />
      <FindingChanges answer={answer} />
      <KernelChanges answer={answer} />
      {answer.grids ? (
        <>
          <h3 class="apart">{cleanText(answer.grids.title)}</h3>
          <ul data-grids>
            {answer.grids.kernels.map(({ name, sentence }) => (
              <li key={sentence} title={cleanText(name)}>
                {cleanText(sentence)}
              </li>
            ))}
          </ul>
        </>
      ) : null}
      <Beside answer={answer} />
    </>
  );
}

interface PairViewProps {
  profile: ProfileId;
  beside: ProfileId;
}

function PairView({ profile, beside }: PairViewProps) {
  const [as, before, after] = [shownAs.value, batchBefore.value, batchAfter.value];
  const pair = useMemo(
    () => pairOf(profile, beside, as, { before, after }),
    [profile.run, profile.session, beside.run, beside.session, as, before, after],
  );
  const [language, now] = [lang.value, revision.value];
  // Asked with the same pair again, what is there stays until the new answer is in.
  const load = () => void comparison.load((options) => fetchComparison(pair, language, options), true);
  useEffect(load, [pair, language, now]);
  useEffect(() => () => comparison.clear(), [pair.before, pair.after]);
  const { status, data, error, progress } = comparison.value;
  return (
    <>
      {status === "failed" && error ? <Failed error={error} retry={load} /> : null}
      {status === "cancelled" ? <Cancelled resume={load} /> : null}
      {status === "loading" && !data ? (
        <Loading label={t("loading_comparison")} progress={progress} cancel={() => comparison.cancel()} />
      ) : null}
      {data ? (
        <div class={status === "ready" ? undefined : "stale"}>
          <Answer answer={data} />
        </div>
      ) : null}
    </>
  );
}

/** Did it help? The shown session held against another one. */
export function CompareView({ profile }: ViewProps) {
  const all = sessions.value.data?.sessions ?? [];
  const candidates = useMemo(() => comparable(all, profile), [all, profile]);
  const wished = other.value;
  const beside = wished && !sameProfile(wished, profile) ? wished : sessionBefore(all, profile);
  const missing = beside !== null && !infoOf(all, beside);
  return (
    <Section id="compare" title={t("view_compare")} lead={t("compare_lead")}>
      <Choose profile={profile} beside={missing ? null : beside} candidates={candidates} />
      {missing ? (
        <p class="state notice">{t("compare_missing", { name: `${beside.run}/${beside.session}` })}</p>
      ) : beside ? (
        <PairView profile={profile} beside={beside} />
      ) : null}
    </Section>
  );
}
