import type { Texts } from "..";
import type { compare as en } from "../en/compare";

export const compare: Texts<typeof en> = {};
