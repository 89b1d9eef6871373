"""What lines and events are, by the names that real and newer profilers give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.traces import classify
from tb_gpu_doctor.traces.columns import CopyKind, EventClass
from tests.real_traces import XPLANE_FOLDERS, real_trace


@pytest.mark.parametrize(
    ("line", "work"),
    [
        ("Stream #13(Compute)", True),
        ("Stream #13", True),
        ("Stream #2(MemcpyH2D,Compute)", True),
        ("Stream #2(Kernel)", True),
        ("Stream #21(MemcpyP2P)", True),
        ("Stream #21(Memset)", True),
        ("Stream #21(CudaGraph)", True),
        ("Stream #21(Generic)", True),
        ("Stream #21(MemcpyD2H,MemoryAlloc)", True),
        ("Stream #-1(Compute)", True),
        ("Stream #21(MemoryResidency)", False),
        ("Stream #21(MemoryAlloc,MemoryFree)", False),
        ("Stream #21(UnifiedMemory)", False),
        ("CUPTI overhead", False),
        ("_counters_", False),
        ("Steps", False),
        ("Steps - from #12", False),
        ("XLA Ops", False),
        ("XLA Ops - from #12", False),
        ("XLA Modules", False),
        ("Framework/TensorFlow Ops", False),
        ("TensorFlow Name Scope", False),
        ("Source code", False),
        ("Launch Stats", False),
        ("", False),
        ("Stream", False),
        ("Stream #x", False),
        ("xStream #3", False),
    ],
)
def test_which_lines_are_work(line: str, work: bool) -> None:
    assert classify.is_work_stream(line, 13) is work


def test_unified_memory_is_reported_on_streams_of_its_own() -> None:
    assert not classify.is_work_stream("Stream #268435457(UnifiedMemory)", 0x10000001)
    assert not classify.is_work_stream("Stream #268435457", 0x10000001)
    assert classify.is_work_stream("Stream #7", 7)


@pytest.mark.parametrize(
    ("kernel", "hlo_op", "collective"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "", True),
        ("ncclKernel_AllReduce_RING_LL_Sum_float", "", True),
        ("NCCL_AllGather", "", True),
        ("void rccl_main_kernel", "", True),
        ("loop_fusion", "all-reduce.1", True),
        ("loop_fusion", "all-reduce-start.12", True),
        ("loop_fusion", "fusion::all-gather-done", True),
        ("loop_fusion", "reduce-scatter", True),
        ("loop_fusion", "all-to-all.3", True),
        ("loop_fusion", "collective-permute-start", True),
        ("loop_fusion", "reduce.3", False),
        ("loop_fusion", "call-reduce", False),
        ("loop_add_fusion", "add.7", False),
        ("ampere_sgemm_128x64_nn", "dot.1", False),
        ("reduce_kernel", "", False),
        ("", "", False),
    ],
)
def test_collectives(kernel: str, hlo_op: str, collective: bool) -> None:
    assert classify.is_collective(kernel, hlo_op) is collective


@pytest.mark.parametrize(
    ("name", "details", "kind"),
    [
        ("MemcpyH2D", "kind_src:pageable kind_dst:device size:4096 dest:0 async:1", CopyKind.H2D),
        ("MemcpyHtoD", "size:112 dest:4 async:0", CopyKind.H2D),
        ("MemcpyD2H", "", CopyKind.D2H),
        ("MemcpyD2D", "", CopyKind.D2D),
        ("MemcpyP2P", "", CopyKind.P2P),
        ("Memcpy HtoD (Pageable -> Device)", "", CopyKind.H2D),
        ("CopyDeviceToHost", "", CopyKind.D2H),
        ("__amd_rocclr_copyBuffer.kd", "kind:Unknown size:655360 dest:2 async:1", CopyKind.OTHER),
        ("copy", "kind_src:device kind_dst:pinned size:8", CopyKind.D2H),
        ("copy", "kind_src:pinned kind_dst:device size:8", CopyKind.H2D),
        ("copy", "kind_src:device kind_dst:device size:8", CopyKind.D2D),
        ("copy", "kind_src:array kind_dst:managed size:8", CopyKind.D2D),
        ("copy", "kind:HostToDevice size:8", CopyKind.H2D),
        ("copy", "kind_src:pageable kind_dst:pinned", CopyKind.OTHER),
        ("copy", "", CopyKind.OTHER),
    ],
)
def test_directions_of_copies(name: str, details: str, kind: CopyKind) -> None:
    assert classify.copy_kind(name, details) is kind


def test_copies_between_gpus_are_communication() -> None:
    assert classify.copy_class(CopyKind.P2P) is EventClass.COMMUNICATION
    for kind in (CopyKind.H2D, CopyKind.D2H, CopyKind.D2D, CopyKind.H2H, CopyKind.OTHER):
        assert classify.copy_class(kind) is EventClass.COPY


def test_details() -> None:
    values = classify.detail_values("kind_src:pageable kind_dst:device size:4096 dest:0 async:1")
    assert classify.detail_int(values, "size") == 4096
    assert classify.detail_int(values, "num_bytes", "size") == 4096
    assert classify.detail_int(values, "kind_src") == -1
    assert classify.detail_int(values, "missing") == -1
    assert classify.detail_int({"size": "-5"}, "size") == -1
    assert classify.detail_int({"size": "9" * 40}, "size") == -1
    assert classify.detail_int({"size": "٣"}, "size") == -1


@given(st.text(max_size=3000), st.text(max_size=3000), st.integers(-(2**63), 2**63 - 1))
def test_any_text_is_classified_without_fuss(name: str, details: str, number: int) -> None:
    classify.is_work_stream(name, number)
    classify.is_collective(name, details)
    classify.copy_kind(name, details)
    assert classify.detail_int(classify.detail_values(details), name) >= -1


@pytest.mark.parametrize("folder", XPLANE_FOLDERS)
def test_every_line_of_the_real_files_that_became_a_stream_is_called_one(folder: str) -> None:
    trace = real_trace(folder)
    assert trace.streams
    assert all(stream.name.startswith("Stream #") for stream in trace.streams)


@pytest.mark.parametrize(
    ("details", "memory"),
    [
        ("kind_src:pageable kind_dst:device size:4096 dest:0 async:1", 1),
        ("kind_src:device kind_dst:pageable size:4", 1),
        ("kind_src:pinned kind_dst:device size:8", 0),
        ("kind_src:pageable kind_dst:pinned", 1),  # staged: the pageable end is what makes it slow
        ("kind_src:device kind_dst:device size:8", -1),
        ("size:112 dest:4 async:0", -1),
        ("", -1),
    ],
)
def test_host_memory_of_copies(details: str, memory: int) -> None:
    assert classify.host_memory(classify.detail_values(details)) == memory


@pytest.mark.parametrize(
    "name",
    [
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
        "void mine::ep::internode::combine<__nv_bfloat16>(int4*)",
        "void internode_ll::dispatch<true, 7168>(void*)",
        "pplx::AllToAllDispatchKernel",
        "void mscclpp::allreduce7<half>(half*)",
        "void quickreduce::allreduce_prototype_twoshot<half>()",
        "void vllm::custom_all_reduce_kernel<half>()",
        "void vllm::cross_device_reduce_1stage<half, 8>()",
        "multimem_all_reduce_bf16",
        "nvshmemi_transfer_put",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<half>()",
    ],
)
def test_kernels_of_communication_libraries(name: str):
    assert classify.is_collective_kernel(name)


@pytest.mark.parametrize(
    "name",
    [
        "void reduce_kernel<512, 1, ReduceOp<float>>",
        "void deep_gemm::fp8_gemm_kernel<4096>()",
        "void step::epilogue::intra_warp()",
        "combine_heads_kernel",
        "dispatch_softmax_forward",
        "void keep::dispatch_kernel()",
    ],
)
def test_kernels_that_only_sound_like_communication(name: str):
    assert not classify.is_collective_kernel(name)
