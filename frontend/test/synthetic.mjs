// Made-up profiles for working on the tab without a backend. Nothing here is shipped.

const CATEGORIES = [
  "compute",
  "communication",
  "transfer",
  "input",
  "launch",
  "sync",
  "compile",
  "checkpoint",
  "host_other",
  "dependency",
  "peer",
  "kernel_gap",
  "no_evidence",
];
const MS = 1e9;

function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export const HOSTILE = `<img src=x onerror=alert(1)> ${"\u202e"}evil${"\u0007"} ${"k".repeat(100_000)}`;

const SCENARIOS = {
  input_bound: { gpus: 1, perStep: 400, steps: 12, gap: 0.42, cause: 3, verdict: "critical" },
  slow_gpu: { gpus: 4, perStep: 300, steps: 10, gap: 0.08, cause: 4, verdict: "warning", communication: true },
  healthy: { gpus: 2, perStep: 200, steps: 10, gap: 0.02, cause: 11, verdict: "ok" },
  many_gpus: { gpus: 64, perStep: 50, steps: 8, gap: 0.2, cause: 4, verdict: "warning", hosts: 8, communication: true },
  million: { gpus: 8, perStep: 1250, steps: 50, gap: 0.15, cause: 4, verdict: "warning" },
  hostile: { gpus: 2, perStep: 100, steps: 4, gap: 0.3, cause: 3, verdict: "critical", hostile: true },
  no_gpu: { gpus: 0, perStep: 0, steps: 0, gap: 0, cause: 12, verdict: "cannot_tell" },
};

const built = new Map();

export function scenario(name) {
  if (!built.has(name)) built.set(name, build(name, SCENARIOS[name]));
  return built.get(name);
}

function build(name, spec) {
  const rng = random(7);
  const hosts = spec.hosts ?? 1;
  const step = 25 * MS;
  const lead = 40 * MS;
  const lanes = [];
  const names = spec.hostile
    ? [HOSTILE, "<script>alert(2)</script>"]
    : [
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>",
        "fusion_42",
        "loop_add_fusion",
      ];
  names.push("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "MemcpyH2D");
  for (let gpu = 0; gpu < spec.gpus; gpu++) {
    const rows = [];
    for (let s = 0; s < spec.steps; s++) {
      const start = lead + s * step;
      const gap = step * spec.gap * (0.8 + 0.4 * rng());
      rows.push([start, start + gap, spec.cause, 65535]);
      let at = start + gap;
      const room = (step - gap) / spec.perStep;
      for (let k = 0; k < spec.perStep; k++) {
        const end = k === spec.perStep - 1 ? start + step : at + room * (0.5 + rng() * 0.5);
        const comm = spec.communication && k > spec.perStep * 0.85;
        const copy = k % 40 === 5;
        rows.push([
          at,
          end,
          comm ? 1 : copy ? 2 : 0,
          comm ? names.length - 2 : copy ? names.length - 1 : k % (names.length - 2),
        ]);
        const next = start + gap + (k + 1) * room;
        if (next > end && k < spec.perStep - 1) rows.push([end, next, rng() < 0.1 ? spec.cause : 11, 65535]);
        at = Math.max(next, end);
      }
    }
    const perHost = Math.ceil(spec.gpus / hosts);
    const host = spec.hostile ? "<b>worker</b>" : `worker${Math.floor(gpu / perHost)}`;
    lanes.push({
      id: gpu,
      kind: "gpu",
      host,
      gpu: gpu % perHost,
      label: `GPU ${gpu % perHost}`,
      name: "NVIDIA H100 80GB HBM3",
      hosts_file: host,
      intervals: rows.length,
      rows,
    });
  }
  const end = lead + spec.steps * step;
  const meta = {
    start_ps: 0,
    end_ps: Math.max(end + 30 * MS, 1),
    window: spec.steps ? { start_ps: lead, end_ps: end } : null,
    profile_start_ms: 0,
    categories: CATEGORIES,
    lanes: lanes.map(({ rows, ...lane }) => lane),
    steps: Array.from({ length: spec.steps }, (_, i) => ({
      number: 100 + i,
      complete: true,
      start_ps: lead + i * step,
      end_ps: lead + (i + 1) * step,
    })),
  };
  return { name, spec, lanes, names, meta };
}

export function bins({ lanes }, start, end, width) {
  const cells = Buffer.alloc(lanes.length * CATEGORIES.length * width);
  const pixel = (end - start) / width;
  lanes.forEach((lane, l) => {
    const sums = new Float64Array(CATEGORIES.length * width);
    for (const [from, to, category] of lane.rows) {
      if (to <= start || from >= end) continue;
      for (let x = Math.max(0, Math.floor((from - start) / pixel)); x < width && start + x * pixel < to; x++) {
        const share = Math.min(to, start + (x + 1) * pixel) - Math.max(from, start + x * pixel);
        if (share > 0) sums[category * width + x] += share / pixel;
      }
    }
    sums.forEach((share, i) => {
      cells[l * sums.length + i] = Math.min(255, Math.ceil(share * 255 - 1e-9));
    });
  });
  const head = Buffer.alloc(12);
  head.writeUInt32LE(lanes.length, 0);
  head.writeUInt32LE(CATEGORIES.length, 4);
  head.writeUInt32LE(width, 8);
  return Buffer.concat([head, cells]);
}

export function events({ lanes, names }, start, end, limit) {
  const rows = [];
  for (const lane of lanes)
    for (const row of lane.rows) if (row[1] > start && row[0] < end) rows.push([lane.id, ...row]);
  const truncated = rows.length > limit;
  const unit = 1000;
  const text = JSON.stringify({ count: rows.length, base_ps: 0, unit_ps: unit, names, truncated });
  const header = Buffer.from(text);
  const padding = (8 - (header.length % 8)) % 8;
  const length = Buffer.alloc(4);
  length.writeUInt32LE(header.length + padding);
  const n = truncated ? 0 : rows.length;
  const column = (Type, pick) => {
    const values = new Type(n);
    for (let i = 0; i < n; i++) values[i] = pick(rows[i]);
    const bytes = Buffer.from(values.buffer);
    return Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)]);
  };
  return Buffer.concat([
    length,
    header,
    Buffer.alloc(padding, " "),
    column(Uint32Array, (row) => row[1] / unit),
    column(Uint32Array, (row) => row[2] / unit),
    column(Uint16Array, (row) => row[0]),
    column(Uint16Array, (row) => row[4]),
    column(Uint8Array, (row) => row[3]),
  ]);
}
