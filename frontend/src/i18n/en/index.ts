import { categories } from "./categories";
import { common } from "./common";
import { compare } from "./compare";
import { gaps } from "./gaps";
import { gpus } from "./gpus";
import { history } from "./history";
import { input } from "./input";
import { kernels } from "./kernels";
import { shell } from "./shell";
import { steps } from "./steps";
import { telemetry } from "./telemetry";
import { terms } from "./terms";
import { timeline } from "./timeline";
import { verdict } from "./verdict";

/** English: one file a view, and those that views share. No key stands in two of them. */
export const parts = {
  common,
  shell,
  terms,
  categories,
  verdict,
  timeline,
  gaps,
  steps,
  gpus,
  kernels,
  input,
  telemetry,
  compare,
  history,
};
export const en = {
  ...common,
  ...shell,
  ...terms,
  ...categories,
  ...verdict,
  ...timeline,
  ...gaps,
  ...steps,
  ...gpus,
  ...kernels,
  ...input,
  ...telemetry,
  ...compare,
  ...history,
};
