import type { Texts } from "..";
import type { input as en } from "../en/input";

export const input: Texts<typeof en> = {};
