"""The kernel table against loops over the events; what single kernels say; names.

Launch details in all dialects, and nothing believed that hardware cannot do.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.kernel_families import FAMILIES, is_persistent, kernel_family
from tb_gpu_doctor.analysis.kernel_results import KernelRow, KernelTable
from tb_gpu_doctor.analysis.kernels import (
    MAX_BLOCK_THREADS,
    MAX_GRID,
    MAX_REGISTERS,
    MAX_SHARED_BYTES,
    UNKNOWN,
    KernelDetails,
    kernel_table,
    parse_kernel_details,
)
from tb_gpu_doctor.analysis.occupancy import theoretical_occupancy
from tb_gpu_doctor.analysis.results import Window
from tb_gpu_doctor.traces.columns import (
    CopyKind,
    Device,
    EventClass,
    SparseStat,
    StringTable,
    Trace,
    device_events,
    host_events,
)

OLDEST = b"""registers_per_thread:32
static_shared_memory_usage:8
dynamic_shared_memory_usage:16384
grid_x:2
grid_y:3
grid_z:1
block_x:64
block_y:2
block_z:1"""


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            b"regs:38 shm:512 grid:160,1,1 block:1024,1,1",
            KernelDetails(38, 512, None, (160, 1, 1), (1024, 1, 1)),
        ),
        (
            b"regs:12 static_shared:0 dynamic_shared:48 grid:3,4,5 block:128,2,1 occ_pct:62.5",
            KernelDetails(12, 0, 48, (3, 4, 5), (128, 2, 1), 62.5),
        ),
        (
            b" grid:219,40,1 block:256,1,1 private_mem:168 group_mem:49280 occ_pct:0",
            KernelDetails(None, 49280, None, (219, 40, 1), (256, 1, 1)),
        ),
        (OLDEST, KernelDetails(32, 8, 16384, (2, 3, 1), (64, 2, 1))),
    ],
    ids=["tf-2.3", "nvidia", "rocm", "oldest"],
)
def test_dialects(raw: bytes, expected: KernelDetails) -> None:
    assert parse_kernel_details(raw) == expected


def test_derived_sizes() -> None:
    details = parse_kernel_details(OLDEST)
    assert (details.shared_bytes, details.block_threads, details.blocks) == (16392, 128, 6)
    assert (UNKNOWN.shared_bytes, UNKNOWN.block_threads, UNKNOWN.blocks) == (None, None, None)
    assert parse_kernel_details(b"regs:38 shm:0 grid:1,1,1 block:1,1,1").shared_bytes == 0


def test_registers_that_are_half_a_pointer_discredit_shared_memory_but_not_the_dimensions() -> None:
    raw = b"regs:2191500840 static_shared:32462 dynamic_shared:0 grid:1280,1,1 block:256,1,1 occ_pct:0"
    assert parse_kernel_details(raw) == KernelDetails(grid=(1280, 1, 1), block=(256, 1, 1))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"regs:16 static_shared:0 dynamic_shared:0 grid:1,1,1 block:1025,1,1 occ_pct:100",
        b"regs:16 static_shared:0 dynamic_shared:0 grid:1,1,1 block:64,32,1 occ_pct:100",
        b"regs:16 shm:0 grid:1,1,1 block:0,1,1",
        b"regs:16 shm:0 grid:1,1,1 block:-32,1,1",
        b"regs:16 shm:0 grid:1,1,1 block:32,1",
        b"regs:16 shm:0 grid:1,1,1 block:32,1,1,1",
        b"regs:16 shm:0 grid:1,1,1 block:",
        b"registers_per_thread:8\nblock_x:2",
        b"gibberish \xff\xfe\x00 :::: ,,,",
        b"{'grid': [1, 1, 1]}",
    ],
)
def test_garbage_is_unknown(raw: bytes) -> None:
    assert parse_kernel_details(raw) == UNKNOWN


@pytest.mark.parametrize("value", [b"256", b"-1", b"99999999999999999999", b"", b"1.5", b"0x10", b"\xd9\xa3"])
def test_impossible_registers(value: bytes) -> None:
    details = parse_kernel_details(b"regs:" + value + b" shm:64 grid:7,1,1 block:32,1,1")
    assert details == KernelDetails(grid=(7, 1, 1), block=(32, 1, 1))


def test_zero_registers_mean_not_recorded() -> None:
    assert parse_kernel_details(b"regs:0 shm:64 grid:7,1,1 block:32,1,1") == KernelDetails(
        None, 64, None, (7, 1, 1), (32, 1, 1)
    )


def test_impossible_shared_memory_and_grid() -> None:
    raw = b"regs:8 static_shared:1048577 dynamic_shared:0 grid:0,1,1 block:32,1,1"
    assert parse_kernel_details(raw) == KernelDetails(block=(32, 1, 1))
    assert parse_kernel_details(b"grid:4294967296,1,1 block:32,1,1").grid is None


@pytest.mark.parametrize("value", [b"0", b"100.5", b"-3", b"nan", b"inf", b"x", b"1e99", b"9" * 400])
def test_impossible_occupancy(value: bytes) -> None:
    assert parse_kernel_details(b"block:32,1,1 occ_pct:" + value).occ_pct is None


@pytest.mark.parametrize(
    "raw",
    [
        b"regs:" * 20_000,
        b"9" * 100_000,
        b"grid:" + b"1," * 50_000,
        b" \n" * 50_000,
        b"block_x:1\n" * 10_000,
        b"\x00" * 100_000,
    ],
)
def test_hostile_text_is_quick(raw: bytes) -> None:
    began = time.perf_counter()
    assert parse_kernel_details(raw) == UNKNOWN
    assert time.perf_counter() - began < 0.05


KEYS = [b"regs", b"shm", b"static_shared", b"dynamic_shared", b"grid", b"block", b"occ_pct", b"grid_x"]
WORDS = st.builds(
    lambda key, value: key + b":" + value.encode(),
    st.sampled_from(KEYS),
    st.text(alphabet="0123456789,.-:e \n", max_size=14),
)


@given(st.binary(max_size=200) | st.lists(WORDS).map(b" ".join))
def test_whatever_comes_the_values_are_possible(raw: bytes) -> None:
    details = parse_kernel_details(raw)
    assert details.registers is None or 1 <= details.registers <= MAX_REGISTERS
    for shared in (details.static_shared_bytes, details.dynamic_shared_bytes):
        assert shared is None or 0 <= shared <= MAX_SHARED_BYTES
    assert details.block_threads is None or 1 <= details.block_threads <= MAX_BLOCK_THREADS
    assert details.grid is None or all(1 <= size <= MAX_GRID for size in details.grid)
    assert details.occ_pct is None or 0 < details.occ_pct <= 100


@given(
    registers=st.integers(1, MAX_REGISTERS),
    static=st.integers(0, 100_000),
    dynamic=st.integers(0, 200_000),
    grid=st.tuples(*[st.integers(1, MAX_GRID)] * 3),
    block=st.tuples(st.integers(1, 32), st.integers(1, 16), st.integers(1, 2)),
    pct=st.integers(1, 100),
)
def test_what_the_profiler_writes_is_read_back(
    registers: int, static: int, dynamic: int, grid: tuple[int, int, int], block: tuple[int, int, int], pct: int
) -> None:
    grid_text, block_text = (",".join(map(str, sizes)) for sizes in (grid, block))
    tail = f"grid:{grid_text} block:{block_text}"
    nvidia = f"regs:{registers} static_shared:{static} dynamic_shared:{dynamic} {tail} occ_pct:{pct}"
    assert parse_kernel_details(nvidia.encode()) == KernelDetails(registers, static, dynamic, grid, block, pct)
    old = f"regs:{registers} shm:{static + dynamic} {tail}"
    assert parse_kernel_details(old.encode()) == KernelDetails(registers, static + dynamic, None, grid, block)


STRINGS = [
    "ampere_sgemm_128x64_nn",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "loop_add_fusion",
    "ampere_sgemm_128x64_nn",  # interned twice: one kernel all the same
    "",
    "regs:64 static_shared:0 dynamic_shared:0 grid:108,1,1 block:256,1,1 occ_pct:25",
    "regs:32 shm:49152 grid:4,2,1 block:128,1,1",
    " grid:4,1,1 block:64,1,1 private_mem:0 group_mem:0 occ_pct:40",
    "regs:900 shm:0 grid:1,1,1 block:1025,1,1",
    "a/MatMul:MatMul",
    "b/MatMul:MatMul",
    "dot.1",
    "XlaModule:",
]
NAMES, DETAILS, OPS = [0, 1, 2, 3, 4], [-1, 4, 5, 6, 7, 8], [-1, 4, 9, 10, 12]
DEVICES = (
    Device(0, "host", 0, sm_count=108, compute_capability=(8, 0), vendor="Nvidia"),
    Device(1, "host", 1, sm_count=304, compute_capability=(9, 4), vendor="AMD"),
    Device(2, "host", 2),
)


def make_trace(rows: list[dict[str, float]], devices: tuple[Device, ...] = DEVICES) -> Trace:
    columns = {key: np.array([row[key] for row in rows]) for key in (rows[0] if rows else {})}
    return Trace(
        path="",
        host="host",
        format="xplane",
        strings=StringTable.of(STRINGS),
        devices=devices,
        streams=(),
        device_events=device_events(len(rows), **columns),
        threads=(),
        host_events=host_events(0),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    event = st.fixed_dictionaries({
        "device": st.integers(0, 2),
        "start": st.integers(0, 1000),
        "duration": st.integers(0, 200) | st.sampled_from([1 << 53, 1 << 61]),
        "name": st.sampled_from(NAMES),
        "details": st.sampled_from(DETAILS),
        "op": st.sampled_from(OPS),
        "hlo_op": st.sampled_from([-1, 11]),
        "klass": st.sampled_from(list(EventClass)),
        "copy_kind": st.sampled_from([CopyKind.NONE, CopyKind.NONE, CopyKind.P2P, CopyKind.H2D]),
        "occupancy_pct": st.sampled_from([float("nan"), 12.5, 50.0]),
    })  # fmt: skip
    return make_trace(draw(st.lists(event, max_size=30)))


def brute_force(trace: Trace, window: Window | None) -> dict[tuple[int, str, str], dict[str, object]]:
    """One pass over the events, one dictionary entry a kernel."""
    events, strings = trace.device_events, trace.strings
    groups: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for i in range(len(events)):
        if events.klass[i] in (EventClass.COMPUTE, EventClass.COMMUNICATION) and events.copy_kind[i] == CopyKind.NONE:
            groups[int(events.device[i]), strings[events.name[i]], strings[events.details[i]]].append(i)
    expected: dict[tuple[int, str, str], dict[str, object]] = {}
    for key, rows in groups.items():
        spans = [(int(events.start[i]), int(events.start[i]) + int(events.duration[i])) for i in rows]
        ops = Counter(strings[events.op[i]].replace("XlaModule:", "") or strings[events.hlo_op[i]] for i in rows)
        del ops[""]
        best = max(ops.values(), default=0)
        recorded = [float(events.occupancy_pct[i]) for i in rows if events.occupancy_pct[i] > 0]
        expected[key] = {
            "calls": len(rows),
            "total_ps": sum(end - start for start, end in spans),
            "min_ps": min(end - start for start, end in spans),
            "max_ps": max(end - start for start, end in spans),
            "in_window_ps": sum(
                end - start if window is None else max(0, min(end, window.end) - max(start, window.start))
                for start, end in spans
            ),
            "ops": {op for op, count in ops.items() if count == best} or {""},
            "communicates": sum(events.klass[i] == EventClass.COMMUNICATION for i in rows) * 2 > len(rows),
            "recorded": max(recorded, default=None),
        }
    return expected


@given(trace=traces(), window=st.none() | st.builds(Window, st.integers(0, 600), st.integers(600, 1300)))
def test_against_loops(trace: Trace, window: Window | None) -> None:
    table = kernel_table(trace, window)
    expected = brute_force(trace, window)
    totals: Counter[int] = Counter()
    for (device, _, _), numbers in expected.items():
        totals[device] += numbers["total_ps"]

    assert len(table.rows) == len(expected)
    assert list(table.rows) == sorted(table.rows, key=lambda row: -row.total_ps)
    left = dict(expected)
    for row in table.rows:
        # Several details may read the same (unknown), so find the group by its numbers.
        key = next(
            key
            for key, numbers in left.items()
            if key[:2] == (row.device, row.name)
            and all(numbers[k] == getattr(row, k) for k in ("calls", "total_ps", "min_ps", "max_ps", "in_window_ps"))
            and parse_kernel_details(key[2].encode()).grid == row.grid
            and row.op in numbers["ops"]
            and occupancy_of(trace, key, numbers) == row.occupancy
        )
        numbers = left.pop(key)
        details = parse_kernel_details(key[2].encode())
        assert row.share == (row.total_ps / totals[row.device] if totals[row.device] else 0.0)
        assert (row.registers, row.block) == (details.registers, details.block)
        assert row.static_shared_bytes == details.static_shared_bytes
        assert row.dynamic_shared_bytes == details.dynamic_shared_bytes
        assert row.family == ("communication" if numbers["communicates"] else kernel_family(row.name, row.op))
        assert row.persistent == is_persistent(row.name)
    assert not left
    check_weighted_occupancy(table, len(trace.devices))


def occupancy_of(trace: Trace, key: tuple[int, str, str], numbers: dict[str, object]) -> float | None:
    device, details = trace.devices[key[0]], parse_kernel_details(key[2].encode())
    if device.is_nvidia:
        computed = theoretical_occupancy(
            device.compute_capability, details.registers, details.shared_bytes, details.block_threads
        )
        if computed is not None:
            return computed.value
    recorded = numbers["recorded"] or details.occ_pct
    return None if recorded is None else recorded / 100


def check_weighted_occupancy(table: KernelTable, devices: int) -> None:
    for device in range(devices):
        rows = [row for row in table.rows if row.device == device and row.family != "communication"]
        everything = sum(row.total_ps for row in rows)
        known = [(row.occupancy, row.total_ps) for row in rows if row.occupancy is not None]
        time = sum(weight for _, weight in known)
        assert table.occupancy_coverage[device] == (time / everything if everything else 0.0)
        if time:
            assert table.occupancy[device] == pytest.approx(sum(value * weight for value, weight in known) / time)
        else:
            assert table.occupancy[device] is None


def one_kernel(device: Device, details: int, **columns: float) -> KernelRow:
    event = {"device": 0, "start": 0, "duration": 10, "name": 0, "details": details, **columns}
    return kernel_table(make_trace([event], (device,)), None).rows[0]


def test_our_own_arithmetic_comes_before_the_recorded_occupancy() -> None:
    row = one_kernel(DEVICES[0], 5, occupancy_pct=99.0)
    assert (row.occupancy, row.limiter) == (0.5, "registers")
    assert row.waves == 108 / (108 * 4)
    assert row.sm_share == 1.0


def test_few_blocks_fill_few_sms() -> None:
    row = one_kernel(DEVICES[0], 6)
    assert (row.static_shared_bytes, row.dynamic_shared_bytes) == (49152, None)
    assert (row.sm_share, row.waves) == (8 / 108, 8 / (108 * 3))
    assert (row.occupancy, row.limiter) == (3 * 4 / 64, "shared_memory")


def test_amd_is_never_put_through_cuda_s_tables() -> None:
    amd = Device(0, "host", 0, vendor="AMD", sm_count=304, compute_capability=(9, 0))
    row = one_kernel(amd, 5, occupancy_pct=float("nan"))
    assert (row.occupancy, row.limiter, row.waves) == (0.25, None, None)  # as recorded in the details
    assert row.sm_share == 108 / 304


def test_unknown_capability_gives_the_recorded_value_or_none() -> None:
    assert one_kernel(Device(0, "host", 0, sm_count=0), 6).occupancy is None
    assert one_kernel(Device(0, "host", 0, sm_count=0), 6).sm_share is None
    assert one_kernel(Device(0, "host", 0, compute_capability=(3, 5)), 6, occupancy_pct=75.0).occupancy == 0.75


def test_garbage_details_leave_the_row_without_launch_facts() -> None:
    row = one_kernel(DEVICES[0], 8)
    assert (row.registers, row.grid, row.block, row.occupancy, row.waves, row.sm_share) == (None,) * 6
    assert row.calls == 1


def test_a_recorded_occupancy_that_differs_is_marked() -> None:
    row = one_kernel(DEVICES[0], 5, occupancy_pct=99.0)  # computed: 50 %
    assert (row.recorded_occupancy, row.occupancy_differs) == (0.99, True)
    row = one_kernel(DEVICES[0], 5, occupancy_pct=50.6)  # as rounded by somebody
    assert row.recorded_occupancy == pytest.approx(0.506) and not row.occupancy_differs
    row = one_kernel(DEVICES[0], 5)  # its details say 25 %
    assert (row.recorded_occupancy, row.occupancy_differs) == (0.25, True)
    assert not one_kernel(DEVICES[0], 6).occupancy_differs
    assert not one_kernel(
        replace(DEVICES[1], index=0), 7, occupancy_pct=99.0
    ).occupancy_differs  # nothing to compare with


def test_what_the_last_wave_leaves_empty() -> None:
    # 108 blocks, 4 of them on each of 108 SMs: a quarter of a wave
    row = one_kernel(DEVICES[0], 5)
    assert (row.wave_blocks, row.waves, row.tail) == (432, 0.25, None)
    assert row.achieved_occupancy == pytest.approx(0.5 / 4)
    # 8 blocks on 4 SMs that hold 3 each: two thirds of one wave; on 2 SMs: one wave and a third
    small = Device(0, "host", 0, sm_count=2, compute_capability=(8, 0))
    row = one_kernel(small, 6)
    assert (row.wave_blocks, row.tail) == (6, pytest.approx(1 / 3))
    assert row.waves == pytest.approx(4 / 3) and row.achieved_occupancy == pytest.approx(12 / 64 * 2 / 3)


def test_tensor_cores_only_where_the_gpu_has_them() -> None:
    assert (one_kernel(DEVICES[0], 5).tensor_cores, one_kernel(DEVICES[0], 5).data_type) == ("unused", "float32")
    for device in (DEVICES[1], DEVICES[2], Device(0, "host", 0, sm_count=28, compute_capability=(6, 1))):
        assert one_kernel(replace(device, index=0), 5).tensor_cores is None


def test_bytes_and_operations_count_only_where_every_call_has_them() -> None:
    gpu = Device(0, "host", 0, memory_bandwidth_bytes_per_s=10**12, peak_flops_per_s=1e15)
    rows = [{"device": 0, "start": i * 100, "duration": 10**6, "name": i // 2, "details": -1} for i in range(4)]
    stats = {
        "bytes_accessed": SparseStat(np.array([0, 1, 2]), np.array([800_000, 900_000, 900_000])),
        "flops": SparseStat(np.array([0, 1, 2]), np.array([1, 2, 3])),
        "achieved_occupancy_pct": SparseStat(np.array([1, 3]), np.array([40, 60])),
    }
    table = kernel_table(replace(make_trace(rows, (gpu,)), device_stats=stats), None)
    first, second = sorted(table.rows, key=lambda row: row.name)
    assert (first.bytes_accessed, first.flops, first.bound) == (1_700_000, 3, "memory")
    assert (second.bytes_accessed, second.flops, second.bound) == (None, None, None)
    assert (first.recorded_achieved, second.recorded_achieved) == (0.4, 0.6)


def test_no_events() -> None:
    table = kernel_table(make_trace([]), None)
    assert table.rows == ()
    assert table.occupancy == (None, None, None)
    assert table.occupancy_coverage == (0.0, 0.0, 0.0)


# -- Names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "family", "persistent"),
    [
        ("ampere_sgemm_128x64_nn", "matmul", False),
        ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_tn", "matmul", False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", "matmul", True),  # noqa: E501
        ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8", "matmul", False),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "matmul", True),
        ("nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT", "matmul", True),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_1LDSB0.kd", "matmul", False),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_SK3_SKXCCM8", "matmul", True),
        ("gemm_fusion_dot_general_1.kd", "matmul", False),
        ("triton_gemm_dot_12", "matmul", False),
        ("matmul_kernel_persistent", "matmul", True),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<MainloopSm90TmaGmmaWarpSpecialized, cutlass::gemm::PersistentScheduler>>", "matmul", True),  # noqa: E501
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>", "matmul", False),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float>", "matmul", False),
        ("turing_h1688cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1", "convolution", False),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "convolution", False),
        ("ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "convolution", False),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>", "convolution", False),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16", "convolution", False),  # noqa: E501
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s16816fprop_optimized_f16_128x128_64x3_nhwc_align8>", "convolution", False),  # noqa: E501
        ("void cudnn::cnn::wgrad2d_grouped_direct_kernel<__half, __half, float>", "convolution", False),
        ("void cudnn::detail::dgrad_engine<float, 128, 6, 8, 3, 3, 5, true>", "convolution", False),
        ("miopenSp3AsmConv_v30_3_1_gfx94x_fp16_stride1", "convolution", False),
        ("Im3d2Col.kd", "convolution", False),
        ("void tensorflow::functor::DepthwiseConv2dGPUKernelNHWCSmall<float>", "convolution", False),
        ("fmha_v2_flash_attention_bf16_64_128_S_q_kv_128_sm90_kernel", "attention", False),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", "attention", False),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::DynamicPersistentTileScheduler>>", "attention", True),  # noqa: E501
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", "attention", False),
        ("void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaBwdConvertQGradKernel<int>>", "attention", False),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", True),
        ("NCCLKernel_AllGather_RING_LL_Sum_int8_t", "communication", True),
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>", "communication", True),
        ("__amd_rocclr_copyBuffer.kd", "copy", False),
        ("__amd_rocclr_fillBufferAligned.kd", "copy", False),
        ("loop_convert_fusion", "elementwise", False),
        ("wrapped_convert.kd", "elementwise", False),
        ("input_reduce_fusion_1", "reduction", False),
        ("triton_poi_fused__to_copy_convolution_relu_0", "elementwise", False),
        ("triton_per_fused_native_layer_norm_3", "normalization", False),
        ("triton_tem_fused_addmm_4", "matmul", False),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>", "normalization", False),
        ("void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorConversionOp<float>>>", "elementwise", False),  # noqa: E501
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise", False),
        ("void tensorflow::functor::FillPhiloxRandomKernelLaunch<UniformDistribution<PhiloxRandom, Eigen::half>>", "elementwise", False),  # noqa: E501
        ("void fbgemm_gpu::permute_indices_weights_kernel<false, int>", "other", False),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16", "matmul", False),
        ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", "attention", True),
        ("void cuApplyLayerNorm<c10::Half, float, c10::Half>", "normalization", False),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>", "normalization", False),  # noqa: E501
        ("void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>", "normalization", False),
        ("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, sum_functor>>", "reduction", False),
        ("void Eigen::internal::EigenMetaKernel<TensorShufflingOp<std::array<int, 3> const>>", "copy", False),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>", "copy", False),
        ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", "copy", False),
        ("input_transpose_fusion", "copy", False),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>", "elementwise", False),
        ("void split_embedding_backward_codegen_rowwise_adagrad_kernel<float>(at::PhiloxCudaState, FixedDivisor)", "other", False),  # noqa: E501
        ("void cub::DeviceRadixSortOnesweepKernel<Policy800>", "other", False),
        ("", "other", False),
    ],
)  # fmt: skip
def test_names(name: str, family: str, persistent: bool) -> None:
    assert kernel_family(name) == family
    assert is_persistent(name) is persistent


def test_the_op_speaks_for_a_mute_name_only() -> None:
    assert kernel_family("Kernel2", "model/dense/MatMul:MatMul") == "matmul"
    assert kernel_family("Kernel2", "aten::convolution") == "convolution"
    assert kernel_family("Kernel2", "model/Relu:Relu") == "elementwise"
    assert kernel_family("Kernel2", "model/Unique:Unique") == "other"
    assert kernel_family("triton__0d1d2d3de", "triton_poi_fused_add_mul_tanh_0") == "elementwise"
    assert kernel_family("input_transpose_fusion", "conv/Conv2D:Conv2D") == "copy"
    assert kernel_family("void SwapDimension1And2InTensor3<int>", "conv/Conv2D:Conv2D") == "copy"
    assert kernel_family("fmha_kernel", "x/MatMul:MatMul") == "attention"


@pytest.mark.parametrize("part", ["cijk_", "miopen", "warpspecialized", "triton_tem_fused", "nccl", "conv", "\n", "é"])
def test_long_names_are_quick(part: str) -> None:
    assert kernel_family(part * (100_000 // len(part)), part * 1000) in FAMILIES


def test_plausible_occupancy_of_a_real_v100_run(shared_traces: Path) -> None:
    xplane = pytest.importorskip("tb_gpu_doctor.traces.xplane")
    (path,) = shared_traces.glob("tf_bert_8gpu/plugins/profile/*/*.xplane.pb")
    trace = xplane.read_xplane(path)
    table = kernel_table(trace, None)
    busy = {row.device for row in table.rows}
    assert {trace.devices[device].id for device in busy} == {4, 6}
    for device in busy:
        # Blocks of 1,024 threads: two fill a V100's SM with up to 32 registers, one fits with 33 to 64.
        rows = [row for row in table.rows if row.device == device]
        assert sum(row.calls for row in rows) == 665
        assert all(row.occupancy == (1.0 if row.registers <= 32 else 0.5) for row in rows if row.registers)
        assert {row.limiter for row in rows if row.occupancy == 0.5} == {"registers"}
        assert table.occupancy_coverage[device] == 1.0
        philox = sum(row.total_ps for row in rows if row.registers == 38) / sum(row.total_ps for row in rows)
        assert table.occupancy[device] == pytest.approx(1 - philox / 2)
        assert sum(row.share for row in rows) == pytest.approx(1.0)
