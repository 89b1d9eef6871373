import type { Texts } from "..";
import type { gpus as en } from "../en/gpus";

export const gpus: Texts<typeof en> = {};
