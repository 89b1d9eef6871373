import type { ComponentType } from "preact";
import type { Diagnosis } from "../api/types";
import type { MessageKey } from "../i18n";
import { sessions } from "../state/store";
import type { ViewId } from "../state/viewIds";
import { later } from "./later";
import { VerdictView } from "./verdict/VerdictView";
import type { ViewProps } from "./viewProps";

export interface View {
  id: ViewId;
  label: MessageKey;
  component: ComponentType<ViewProps>;
  /** Whether there is anything to show; without it always. Views without it are not offered. */
  offered?: (result: Diagnosis) => boolean;
}

/** What was recorded beside training knows the GPUs, but not what they did when. */
const hasGpus = ({ devices, profile }: Diagnosis): boolean => devices.length > 0 && profile.format !== "telemetry";

/** The host's input can be looked at without any GPU. */
const isProfile = ({ profile }: Diagnosis): boolean => profile.format !== "telemetry";

/** One profile alone has nothing beside it, and no past. */
const hasOthers = (result: Diagnosis): boolean =>
  hasGpus(result) && (sessions.value.data?.sessions ?? []).filter(({ format }) => format !== "telemetry").length > 1;

/** What the navigation offers, in its order. Names without an entry are kept in links and lead to the verdict. */
export const VIEWS: readonly View[] = [
  { id: "verdict", label: "view_verdict", component: VerdictView },
  {
    id: "timeline",
    label: "view_timeline",
    component: later(async () => (await import("./timeline/TimelineView")).TimelineView),
    offered: hasGpus,
  },
  {
    id: "gaps",
    label: "view_gaps",
    component: later(async () => (await import("./gaps/GapsView")).GapsView),
    offered: hasGpus,
  },
  {
    id: "steps",
    label: "view_steps",
    component: later(async () => (await import("./steps/StepsView")).StepsView),
    offered: hasGpus,
  },
  {
    id: "gpus",
    label: "view_gpus",
    component: later(async () => (await import("./gpus/GpusView")).GpusView),
    offered: hasGpus,
  },
  {
    id: "kernels",
    label: "view_kernels",
    component: later(async () => (await import("./kernels/KernelsView")).KernelsView),
    offered: hasGpus,
  },
  {
    id: "input",
    label: "view_input",
    component: later(async () => (await import("./input/InputView")).InputView),
    offered: isProfile,
  },
  {
    id: "telemetry",
    label: "view_telemetry",
    component: later(async () => (await import("./telemetry/TelemetryView")).TelemetryView),
  },
  {
    id: "compare",
    label: "view_compare",
    component: later(async () => (await import("./compare/CompareView")).CompareView),
    offered: hasOthers,
  },
  {
    id: "history",
    label: "view_history",
    component: later(async () => (await import("./history/HistoryView")).HistoryView),
    offered: hasOthers,
  },
];

/** The views of a profile. */
export const offeredViews = (result: Diagnosis | null): View[] =>
  VIEWS.filter(({ offered }) => !offered || (result !== null && offered(result)));
