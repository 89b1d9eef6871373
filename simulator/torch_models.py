"""What PyTorch trains here: the operators of one step of a GPT-like network, with the kernels that they launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.device import Kernel
from simulator.models import AllReduce

_GEMM = "ampere_bf16_s16816gemm_bf16_{tile}_ldg8_f2f_stages_{stages}_{layout}"
_ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{functor}, std::array<char*, {count}ul> >"
    "(int, at::native::{functor}, std::array<char*, {count}ul>)"
)
_NORM = "void at::native::(anonymous namespace)::{}<c10::BFloat16, float>(int, float, c10::BFloat16 const*, ...)"
_FLASH = "void pytorch_flash::{}<pytorch_flash::Flash_{}_kernel_traits<64, 128, 128, 4, ...>, ...>(...)"


@dataclass(frozen=True)
class Operator:
    """One call of PyTorch: the operators around it, outermost first, and the kernels it launches.

    Attributes:
        names: of the host's events.
        kernels: launched in this order; an `AllReduce` goes to NCCL's stream.
    """

    names: tuple[str, ...]
    kernels: tuple[Kernel | AllReduce, ...]


@dataclass(frozen=True)
class TorchModel:
    """One step: what the main thread runs, what autograd's thread runs, and the optimizer."""

    forward: Sequence[Operator]
    backward: Sequence[Operator]
    optimizer: Sequence[Operator]


def gemm(micros: float, tile: str = "128x256", layout: str = "tn", blocks: int = 432) -> Kernel:
    """A matrix product on tensor cores."""
    stages = "64x3" if tile == "128x256" else "64x4"
    name = _GEMM.format(tile=tile, stages=stages, layout=layout)
    return Kernel(
        name,
        micros,
        grid=(blocks, 1, 1),
        block=(256, 1, 1),
        registers=230,
        dynamic_shared_bytes=147_456,
        call="cudaLaunchKernel",
    )


def elementwise(micros: float, functor: str, count: int = 2) -> Kernel:
    """An element-wise kernel of ATen."""
    name = _ELEMENTWISE.format(functor=functor, count=count)
    return Kernel(name, micros, grid=(4_096, 1, 1), block=(128, 1, 1), registers=28, call="cudaLaunchKernel")


def _norm(micros: float, kernel: str) -> Kernel:
    return Kernel(
        _NORM.format(kernel),
        micros,
        grid=(8_192, 1, 1),
        block=(128, 1, 1),
        registers=40,
        static_shared_bytes=24,
        call="cudaLaunchKernel",
    )


def _flash(micros: float, kernel: str, kind: str) -> Kernel:
    return Kernel(
        _FLASH.format(kernel, kind),
        micros,
        grid=(16, 8, 12),
        block=(128, 1, 1),
        registers=254,
        dynamic_shared_bytes=81_920,
        call="cudaLaunchKernel",
    )


def nccl_all_reduce(size_bytes: int, micros: float) -> AllReduce:
    """One bucket of gradients; the size of the message stands in the kernel's ``copy_bytes``."""
    kernel = Kernel(
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        micros,
        grid=(24, 1, 1),
        block=(544, 1, 1),
        registers=96,
        static_shared_bytes=29_040,
        copy_bytes=size_bytes,
        communication=True,
        call="cudaLaunchKernelExC",
    )
    return AllReduce(kernel, micros)


def _linear(micros: float, blocks: int) -> Operator:
    return Operator(("aten::linear", "aten::addmm"), (gemm(micros, blocks=blocks),))


def _linear_backward(micros: float, blocks: int) -> list[Operator]:
    around = ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0", "aten::mm")
    accumulate = (
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "torch::autograd::AccumulateGrad",
        "aten::add_",
    )  # fmt: skip
    return [
        Operator(around, (gemm(micros, layout="nn", blocks=blocks),)),
        Operator(around, (gemm(micros, "256x128", layout="nt", blocks=blocks),)),
        Operator(accumulate, (elementwise(micros / 9, "CUDAFunctor_add<c10::BFloat16>", 3),)),
    ]


def gpt(layers: int = 6, scale: float = 1.0, buckets: int = 3) -> TorchModel:
    """A decoder in bf16 under DistributedDataParallel; its gradients travel in buckets."""
    forward: list[Operator] = []
    backward: list[Operator] = []
    for layer in range(layers):
        forward += [
            Operator(("aten::layer_norm", "aten::native_layer_norm"), (_norm(38, "vectorized_layer_norm_kernel"),)),
            _linear(330, 864),
            Operator(
                ("aten::scaled_dot_product_attention", "aten::_flash_attention_forward"),
                (_flash(260, "flash_fwd_kernel", "fwd"),),
            ),
            _linear(120, 288),
            Operator(("aten::add",), (elementwise(34, "CUDAFunctor_add<c10::BFloat16>", 3),)),
            _linear(430, 1_152),
            Operator(("aten::gelu",), (elementwise(72, "GeluCUDAKernelImpl(...)::{lambda(c10::BFloat16)#1}"),)),
            _linear(440, 288),
        ]
        name = "autograd::engine::evaluate_function: {0}Backward0"
        backward += [
            *_linear_backward(430, 288),
            Operator(
                (name.format("Gelu"), "GeluBackward0", "aten::gelu_backward"),
                (elementwise(96, "GeluBackwardCUDAKernelImpl(...)::{lambda(c10::BFloat16, c10::BFloat16)#1}", 3),),
            ),
            *_linear_backward(440, 1_152),
            *_linear_backward(120, 288),
            Operator(
                (name.format("ScaledDotProductFlashAttention"), "aten::_flash_attention_backward"),
                (_flash(610, "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "bwd"),),
            ),
            *_linear_backward(330, 864),
            Operator(
                (name.format("NativeLayerNorm"), "aten::native_layer_norm_backward"),
                (_norm(64, "layer_norm_grad_input_kernel_vectorized"), _norm(41, "GammaBetaBackwardCUDAKernel")),
            ),
        ]
        if layer * buckets // layers != (layer + 1) * buckets // layers:
            reduce = nccl_all_reduce(50_331_648 * layers // (6 * buckets), 1_150)
            backward.append(Operator(("c10d::allreduce_", "nccl:all_reduce"), (reduce,)))
    loss = (
        Operator(("aten::cross_entropy_loss", "aten::log_softmax"), (elementwise(210, "SoftMaxForwardFunctor"),)),
        Operator(("aten::cross_entropy_loss", "aten::nll_loss_nd"), (elementwise(9, "NllLossForwardFunctor"),)),
    )
    adam = Kernel(
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, "
        "(at::native::ADAM_MODE)1, false>, ...>(...)",
        190,
        grid=(320, 1, 1),
        block=(512, 1, 1),
        registers=56,
        call="cudaLaunchKernel",
        joins=True,
    )
    optimizer = [Operator(("aten::_fused_adamw_",), (adam,)) for _ in range(4)]
    return TorchModel(
        *(
            [Operator(op.names, tuple(_scaled(kernel, scale) for kernel in op.kernels)) for op in part]
            for part in ([*forward, *loss], backward, optimizer)
        )
    )


def _scaled(kernel: Kernel | AllReduce, scale: float) -> Kernel | AllReduce:
    return kernel if isinstance(kernel, AllReduce) else replace(kernel, micros=kernel.micros * scale)
