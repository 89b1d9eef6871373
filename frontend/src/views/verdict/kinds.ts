/** Finding kinds that the tab treats differently. */

/** Of a GPU without work the title says it all. */
export const COSTLESS: ReadonlySet<string> = new Set(["idle_gpus"]);

/** About the profile itself: they say what is missing to judge the run. */
export const ABOUT_PROFILE: ReadonlySet<string> = new Set([
  "no_gpu_plane",
  "empty_gpu_plane",
  "dropped_events",
  "no_steps",
  "short_profile",
  "serialized_kernels",
  "profiler_overhead",
  "clock_skew",
]);
