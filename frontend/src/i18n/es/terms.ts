import type { Texts } from "..";
import type { terms as en } from "../en/terms";

export const terms: Texts<typeof en> = {};
