import type { ComponentType } from "preact";
import type { Diagnosis } from "../api/types";
import type { MessageKey } from "../i18n";
import { sessions } from "../state/store";
import type { ViewId } from "../state/viewIds";
import { CompareView } from "./compare/CompareView";
import { GapsView } from "./gaps/GapsView";
import { GpusView } from "./gpus/GpusView";
import { HistoryView } from "./history/HistoryView";
import { InputView } from "./input/InputView";
import { KernelsView } from "./kernels/KernelsView";
import { StepsView } from "./steps/StepsView";
import { TelemetryView } from "./telemetry/TelemetryView";
import { TimelineView } from "./timeline/TimelineView";
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

/** One profile alone has nothing beside it, and no past. */
const hasOthers = (result: Diagnosis): boolean =>
  hasGpus(result) && (sessions.value.data?.sessions ?? []).filter(({ format }) => format !== "telemetry").length > 1;

/** What the navigation offers, in its order. Names without an entry are kept in links and lead to the verdict. */
export const VIEWS: readonly View[] = [
  { id: "verdict", label: "view_verdict", component: VerdictView },
  { id: "timeline", label: "view_timeline", component: TimelineView, offered: hasGpus },
  { id: "gaps", label: "view_gaps", component: GapsView, offered: hasGpus },
  { id: "steps", label: "view_steps", component: StepsView, offered: hasGpus },
  { id: "gpus", label: "view_gpus", component: GpusView, offered: hasGpus },
  { id: "kernels", label: "view_kernels", component: KernelsView, offered: hasGpus },
  { id: "input", label: "view_input", component: InputView, offered: hasGpus },
  { id: "telemetry", label: "view_telemetry", component: TelemetryView },
  { id: "compare", label: "view_compare", component: CompareView, offered: hasOthers },
  { id: "history", label: "view_history", component: HistoryView, offered: hasOthers },
];

/** The views of a profile. */
export const offeredViews = (result: Diagnosis | null): View[] =>
  VIEWS.filter(({ offered }) => !offered || (result !== null && offered(result)));
