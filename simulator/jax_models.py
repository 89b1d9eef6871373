"""What is trained with JAX: the kernels of one compiled step."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.device import Kernel
from simulator.models import Item, all_reduce

_STEP = "jit(train_step)/jit(main)"


def _gemm(hlo_op: str, op: str, micros: float, name: str = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT") -> Kernel:
    return Kernel(
        name,
        micros,
        (132, 8, 1),
        (384, 1, 1),
        168,
        dynamic_shared_bytes=213_504,
        op=f"{_STEP}/{op}",
        hlo_op=hlo_op,
        call="cuLaunchKernelEx",
    )


def _fusion(
    hlo_op: str, op: str, micros: float, blocks: int = 4_096, threads: int = 256, registers: int = 32
) -> Kernel:
    return Kernel(
        hlo_op.replace(".", "_"), micros, (blocks, 1, 1), (threads, 1, 1), registers, op=f"{_STEP}/{op}", hlo_op=hlo_op
    )


def _attention(hlo_op: str, op: str, micros: float, backward: bool) -> Kernel:
    name = "cudnn_generated_fort_native_sdpa_sm90_flash_{}_wgmma_f16_knob_{}x64x128_4x1x1_cga1x1x1_kernel0_0"
    return Kernel(
        name.format("bprop" if backward else "fprop", 64 if backward else 128),
        micros,
        (16, 32, 8),
        (384, 1, 1),
        168,
        dynamic_shared_bytes=180_224,
        op=f"{_STEP}/{op}",
        hlo_op=hlo_op,
        call="cuLaunchKernelEx",
    )


def transformer(layers: int = 8) -> Iterator[Item]:
    """A GPT-like step, matmul-heavy, gradients reduced while the backward pass still runs."""
    for i in range(layers):
        scope = f"jvp(layer_{i})"
        yield _fusion(f"input_reduce_fusion.{i}", f"{scope}/layer_norm/reduce_sum", 95)
        yield _gemm(f"cublas-gemm.{10 * i + 1}", f"{scope}/qkv/dot_general", 780)
        yield _attention(f"fmha.{i}", f"{scope}/attention/dot_product_attention", 620, False)
        yield _gemm(f"cublas-gemm.{10 * i + 2}", f"{scope}/out/dot_general", 270)
        yield _gemm(f"cublas-gemm.{10 * i + 3}", f"{scope}/mlp/up/dot_general", 1_050)
        yield _fusion(f"loop_multiply_fusion.{i}", f"{scope}/mlp/gelu/mul", 130)
        yield _gemm(f"cublas-gemm.{10 * i + 4}", f"{scope}/mlp/down/dot_general", 1_040)
        yield _fusion(f"loop_add_fusion.{i}", f"{scope}/add", 60)
    yield _gemm("cublas-gemm.901", "jvp(logits)/dot_general", 2_300)
    yield _fusion("input_exponential_reduce_fusion", "jvp(loss)/reduce_sum", 310)
    for i in reversed(range(layers)):
        scope = f"transpose(jvp(layer_{i}))"
        yield _gemm(f"cublas-gemm.{10 * i + 5}", f"{scope}/mlp/down/dot_general", 2_060)
        yield _fusion(f"loop_select_multiply_fusion.{i}", f"{scope}/mlp/gelu/mul", 170)
        yield _gemm(f"cublas-gemm.{10 * i + 6}", f"{scope}/mlp/up/dot_general", 2_080)
        yield _attention(f"fmha-backward.{i}", f"{scope}/attention/dot_product_attention", 1_540, True)
        yield _gemm(f"cublas-gemm.{10 * i + 7}", f"{scope}/qkv/dot_general", 1_560)
        yield _fusion(f"input_reduce_fusion.{100 + i}", f"{scope}/layer_norm/reduce_sum", 190)
        if i % 2 == 0:
            yield all_reduce(f"{_STEP}/{scope}/psum", 2_400 if i else 700, f"all-reduce-start.{i}")
    for i in range(4):
        op = f"adam/update_{i}/add"
        yield Kernel(
            f"loop_add_divide_fusion_{i}",
            320,
            (8_192, 1, 1),
            (256, 1, 1),
            36,
            op=f"{_STEP}/{op}",
            hlo_op=f"loop_add_divide_fusion.{i}",
            joins=True,
        )


def tiny_ops(kernels: int = 1_000) -> Iterator[Item]:
    """An unrolled recurrent network: kernels of two or three microseconds, one launch each."""
    kinds = (
        ("wrapped_slice", "while/body/dynamic_slice", 1.6),
        ("gemm_fusion_dot", "while/body/dot_general", 4.2),
        ("loop_add_tanh_fusion", "while/body/tanh", 2.1),
        ("loop_multiply_fusion", "while/body/mul", 1.9),
        ("loop_dynamic_update_slice_fusion", "while/body/dynamic_update_slice", 1.8),
    )
    for i in range(kernels):
        name, op, micros = kinds[i % len(kinds)]
        yield Kernel(
            f"{name}_{i % 40}" if i % 40 else name,
            micros,
            (216, 1, 1),
            (256, 1, 1),
            32,
            op=f"{_STEP}/{op}",
            hlo_op=f"{name}.{i}" if i else name,
        )
    yield all_reduce(f"{_STEP}/psum", 38, "all-reduce-start")
    yield Kernel(
        "loop_subtract_fusion",
        3.0,
        (432, 1, 1),
        (256, 1, 1),
        24,
        op=f"{_STEP}/sub",
        hlo_op="loop_subtract_fusion",
        joins=True,
    )


def unfit_kernels(rounds: int = 24) -> Iterator[Item]:
    """A scientific model whose own kernels fill the GPU badly, one kind for each reason."""
    for i in range(rounds):
        yield Kernel(  # 8 of 64 warps: 200 registers a thread leave room for one block of 256 threads
            "loop_advect_stencil_fusion",
            1_150,
            (2_048, 1, 1),
            (256, 1, 1),
            200,
            op=f"{_STEP}/advect_{i}/custom_derivative",
            hlo_op=f"loop_advect_stencil_fusion.{i}",
        )
        yield Kernel(  # 8 of 64 warps: 114 KB of shared memory a block
            "input_histogram_reduce_fusion",
            420,
            (2_048, 1, 1),
            (256, 1, 1),
            48,
            dynamic_shared_bytes=116_736,
            op=f"{_STEP}/moments_{i}/scatter_add",
            hlo_op=f"input_histogram_reduce_fusion.{i}",
        )
        yield Kernel(  # 20 blocks for 132 SMs
            "wrapped_cumsum_scan",
            760,
            (20, 1, 1),
            (512, 1, 1),
            40,
            op=f"{_STEP}/boundary_{i}/cumsum",
            hlo_op=f"wrapped_cumsum_scan.{i}",
        )
        yield _fusion(f"loop_add_multiply_fusion.{i}", f"update_{i}/mul", 260)
    yield all_reduce(f"{_STEP}/psum", 350, "all-reduce-start")
    yield Kernel(
        "loop_subtract_fusion",
        210,
        (4_096, 1, 1),
        (256, 1, 1),
        24,
        op=f"{_STEP}/sub",
        hlo_op="loop_subtract_fusion",
        joins=True,
    )
