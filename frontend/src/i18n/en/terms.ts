export const terms = {
  term_step:
    "From the end of the GPU's step before to the end of its own last work: each step owns the wait in front of it.",
  term_late:
    "How far this GPU was behind the first one to come, summed over the collectives of the step. The one that is late keeps the others waiting.",
  term_outlier:
    "A step that is longer than the median by over 3.5 scaled median deviations and by over 25%. Steps are compared on the same GPU, from 8 steps on.",
  term_gap: "A stretch in which no stream of the GPU does anything.",
  term_gap_cause:
    "What most of the gap is charged to. Before the launch that ends it the host was late, after it the device.",
  term_gap_charged: "The part of the gap that is charged to this cause.",
  term_gap_evidence: "The event of the host that explains most of the host's part of the gap.",
  term_hidden: "Communication that ran beside computation: it costs nothing.",
  term_last:
    "How many collectives this GPU was the last to enter, by more than the error, out of those that could be compared.",
  term_behind: "How far behind the first GPU this one enters a collective, on average.",
  term_unmatched: "Collectives of this GPU that could not be matched with those of the others.",
  term_group: "The GPUs that run this collective together.",
  term_inside: "Time between entering and leaving the collective, as the mean over its GPUs, in total.",
  term_collective_wait: "Time inside the collective until the last GPU has entered it, hidden or not.",
  term_collective_moving: "Time inside the collective after the last GPU has entered it, hidden or not.",
  term_algorithm_bandwidth: "Size of the data divided by the median time without waiting, as nccl-tests counts it.",
  term_bus_bandwidth:
    "The algorithm bandwidth times a factor of the kind and number of GPUs, so that it compares with the speed of the links, as in nccl-tests.",
  term_heat_late: "How far a GPU was behind the first one to come, summed over the collectives of the step.",
  term_heat_busy: "The part of the GPU's step in which it computed.",
  term_heat_compute: "How long the GPU computed in the step.",
  term_heat_wait: "How long the GPU waited inside collectives for others, with no computation beside it.",
  term_heat_wall: "How long the step of the GPU took.",
  term_glance_compute: "Mean over the GPUs: the part of the analysed window in which kernels computed.",
  term_glance_saving:
    "The most that a step could become shorter if the largest finding were fixed, and its part of the median step. Gains of several findings do not add up.",
  term_glance_findings: "How many findings there are of each severity.",
} as const;
