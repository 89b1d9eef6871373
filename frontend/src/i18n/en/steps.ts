export const steps = {
  steps_lead: "Each step of each GPU by what filled it. The wait in front of a step belongs to it.",
  steps_step: "Step",
  steps_wall: "Duration",
  steps_late: "Late",
  steps_outlier: "outlier",
  steps_no_outlier: "none",
  steps_several: "{first} and the next ones, {n} in all",
  steps_table: "Numbers per step",
  steps_hint: "Click a step to see it in the timeline.",
  steps_summary: "{n} steps, median {median}, longest {longest}, outliers: {slow}.",
  steps_gpu_none: "This GPU has no complete step.",
  steps_count: "{n} complete steps, median {median}.",
  steps_slow: "Slow ones: {list}.",
  steps_inferred_confidence:
    "The profile marks no steps; these were found by how the work repeats, of which {share} is equal kernel for kernel.",
  steps_per_column: "Each column stands for {n} steps.",
  steps_missing:
    "The profile holds no complete step, so nothing can be compared step by step. The findings say how to mark steps.",
} as const;
