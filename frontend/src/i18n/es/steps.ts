import type { Texts } from "..";
import type { steps as en } from "../en/steps";

export const steps: Texts<typeof en> = {};
