import type { Texts } from "..";
import type { telemetry as en } from "../en/telemetry";

export const telemetry: Texts<typeof en> = {};
