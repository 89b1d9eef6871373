export const categories = {
  category_compute: "Compute",
  category_communication: "Communication",
  category_transfer: "Copies",
  category_idle: "Idle",
  category_input: "Idle: waiting for input",
  category_launch: "Idle: launching kernels",
  category_sync: "Idle: host waited for the GPU",
  category_compile: "Idle: compiling",
  category_checkpoint: "Idle: saving",
  category_host_other: "Idle: other host work",
  category_allocator: "Idle: allocating GPU memory",
  category_dependency: "Idle: waiting for another stream",
  category_peer: "Idle: waiting for another GPU",
  category_kernel_gap: "Idle: between queued kernels",
  category_queued: "Idle: launched, not started",
  category_no_evidence: "Idle: no evidence why",
  category_hint_compute: "Kernels that compute ran, whatever else went on beside them.",
  category_hint_communication:
    "Collectives (NCCL and the like) and copies between GPUs ran, and nothing computed beside them. Waiting for slower GPUs inside a collective is part of it.",
  category_hint_transfer: "Copies from and to the host or within the GPU ran, and nothing else beside them.",
  category_hint_idle: "Nothing ran on the GPU: the sum of the idle times by cause.",
  category_hint_input:
    "The GPU had nothing to do because the host had no batch ready: reading or preparing data was too slow.",
  category_hint_launch:
    "The GPU had nothing to do because the host was still busy preparing or issuing the next launch: many short kernels, or slow Python.",
  category_hint_sync:
    "The host had waited until the GPU had finished everything, and launched more only then: a value read back, a synchronisation.",
  category_hint_compile: "The host traced, compiled or tuned a function before it could launch it.",
  category_hint_checkpoint: "The host saved weights or wrote summaries before it went on.",
  category_hint_host_other: "The host was late for another reason; the timeline names what it did.",
  category_hint_allocator:
    "The host was inside the driver's allocator (cudaMalloc, cudaFree and the like), which a caching allocator avoids inside steps.",
  category_hint_dependency:
    "The work had been launched, and an event on another stream of the same GPU ended right before it: the handover takes microseconds.",
  category_hint_peer: "The work had been launched, but had to wait for another GPU, outside a collective.",
  category_hint_kernel_gap:
    "The GPU's own pause of a microsecond or two before a kernel that was already queued. Thousands of them are a case for fusing kernels.",
  category_hint_queued:
    "The work had been launched and the GPU was empty, yet it did not start: nothing in the profile held it up, so perhaps another process had the GPU.",
  category_hint_no_evidence: "Nothing ran, and nothing in the profile shows why.",
  category_communication_wait: "Waiting in collectives",
  category_communication_moving: "Moving data in collectives",
  category_communication_unsplit: "Communication, not split",
  category_hint_communication_wait:
    "The GPU was inside a collective and waited for the last GPU to enter it, with no computation beside it.",
  category_hint_communication_moving:
    "All GPUs were inside the collective and data moved, with no computation beside it.",
  category_hint_communication_unsplit:
    "Communication that no computation hides, where waiting and moving data cannot be told apart: the collective could not be matched over the GPUs.",
} as const;
