import type { Texts } from "..";
import type { gaps as en } from "../en/gaps";

export const gaps: Texts<typeof en> = {};
