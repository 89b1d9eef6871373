import { Resource } from "../state/resource";
import { getJson } from "./client";

/** Where each GPU's time went, step by step; tables are `[gpu][column]`. */
export interface StepsAnswer {
  source: "marked" | "inferred" | "none";
  confidence: number | null;
  gpus: { lane: number; host: string; gpu: number }[];
  steps: { number: number; count: number; start_ps: number; end_ps: number }[];
  steps_per_column: number;
  total_steps: number;
  wall_ps: (number | null)[][];
  longest_ps: (number | null)[][];
  late_ps: (number | null)[][] | null;
  parts: string[];
  parts_ps: Record<string, (number | null)[][]>;
}

export const stepsResource = new Resource<StepsAnswer>((profile, _lang, options) =>
  getJson("steps", { ...profile }, options),
);
