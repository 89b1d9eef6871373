"""What is trained: the kernels of one step, with names and shapes as real libraries have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simulator.device import Kernel
from simulator.items import Allocation, Bounce, Graph, HostWork, Synchronize

_CONV = "sm90_xmma_{pass_}_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize{tile}_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn"  # noqa: E501
_EIGEN = (
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<"
    "Eigen::Tensor<{type_}, 1, 1, int>, 16, Eigen::MakePointer>, Eigen::TensorCwise{arity}Op<Eigen::internal::{op}<"
    "{type_}>, Eigen::TensorMap<Eigen::Tensor<{type_} const, 1, 1, int>, 16, Eigen::MakePointer> const> const> const, "
    "Eigen::GpuDevice>, int>({type_}, int)"
)
NCCL_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class AllReduce:
    """A collective over all GPUs; ``micros`` is its transfer once the last GPU has arrived."""

    kernel: Kernel
    micros: float


Item = Kernel | AllReduce | HostWork | Synchronize | Allocation | Bounce | Graph


def all_reduce(op: str, micros: float, hlo_op: str = "") -> AllReduce:
    """An NCCL all-reduce over every GPU."""
    kernel = Kernel(
        NCCL_ALL_REDUCE,
        micros,
        grid=(24, 1, 1),
        block=(544, 1, 1),
        registers=96,
        static_shared_bytes=83_280,
        op=op,
        hlo_op=hlo_op,
        communication=True,
        call="cuLaunchKernelEx",
    )
    return AllReduce(kernel, micros)


def eigen(op: str, functor: str, micros: float, type_: str = "Eigen::bfloat16", arity: str = "Unary") -> Kernel:
    """An element-wise kernel of TensorFlow."""
    return Kernel(
        _EIGEN.format(type_=type_, op=functor, arity=arity),
        micros,
        grid=(264, 1, 1),
        block=(1024, 1, 1),
        registers=20,
        op=op,
    )


def _conv(op: str, pass_: str, tile: str, micros: float, blocks: int) -> Kernel:
    return Kernel(
        _CONV.format(pass_=pass_, tile=tile),
        micros,
        grid=(blocks, 1, 1),
        block=(384, 1, 1),
        registers=168,
        dynamic_shared_bytes=196_608 if tile == "128x128x64" else 229_376,
        op=op,
        call="cuLaunchKernelEx",
    )


def _batch_norm(op: str, backward: bool, micros: float) -> Kernel:
    name = "cudnn::bn_{}_tr_1C11_kernel_NCHW<__nv_bfloat16, float, int, 512, true, 1, true>(...)"
    return Kernel(
        "void " + name.format("bw" if backward else "fw"),
        micros,
        grid=(528, 1, 1),
        block=(512, 1, 1),
        registers=40,
        static_shared_bytes=4_224,
        op=op,
    )


def resnet(replica: int, blocks: int = 16, scale: float = 1.0, exchange_us: float = 900.0) -> Iterator[Item]:
    """One training step of a ResNet-like network under TF's MirroredStrategy, for one replica."""
    prefix = f"replica_{replica}/" if replica else ""
    names = [f"conv{1 + i // 4}_block{1 + i % 4}" for i in range(blocks)]

    def scaled(kernel: Kernel) -> Kernel:
        return replace(kernel, micros=kernel.micros * scale)

    for i, name in enumerate(names):
        scope = f"{prefix}resnet50/{name}"
        tile = "128x128x64" if i % 2 else "256x128x64"
        yield scaled(_conv(f"{scope}_1_conv/Conv2D:Conv2D", "fprop", tile, 640 + 40 * (i % 3), 3_136 >> (i // 4)))
        yield scaled(_batch_norm(f"{scope}_1_bn/FusedBatchNormV3:FusedBatchNormV3", False, 210))
        yield scaled(eigen(f"{scope}_1_relu/Relu:Relu", "scalar_max_op", 120))
    yield scaled(
        Kernel(
            "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_64x3_tn_align8",
            260,
            (8, 32, 1),
            (256, 1, 1),
            234,
            dynamic_shared_bytes=147_456,
            op=f"{prefix}resnet50/predictions/MatMul:MatMul",
        )
    )
    scope = f"{prefix}categorical_crossentropy/softmax_cross_entropy_with_logits"
    yield scaled(eigen(f"{scope}:SoftmaxCrossEntropyWithLogits", "scalar_exp_op", 60, "float"))
    for i, name in reversed(list(enumerate(names))):
        scope = f"{prefix}gradient_tape/resnet50/{name}"
        tile = "128x128x64" if i % 2 else "256x128x64"
        grid = 3_136 >> (i // 4)
        yield scaled(eigen(f"{scope}_1_relu/ReluGrad:ReluGrad", "scalar_product_op", 140, arity="Binary"))
        yield scaled(_batch_norm(f"{scope}_1_bn/FusedBatchNormGradV3:FusedBatchNormGradV3", True, 330))
        yield scaled(_conv(f"{scope}_1_conv/Conv2DBackpropInput:Conv2DBackpropInput", "dgrad", tile, 700, grid))
        yield scaled(_conv(f"{scope}_1_conv/Conv2DBackpropFilter:Conv2DBackpropFilter", "wgrad", tile, 760, grid))
        if i in (blocks // 2, 0):
            yield all_reduce(f"{prefix}Adam/CollectiveReduceV2_{i}:CollectiveReduceV2", exchange_us)
    for i in range(8):
        yield scaled(
            Kernel(
                "void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*, float*, float const*, ...)",
                46,
                (1_056, 1, 1),
                (512, 1, 1),
                30,
                op=f"{prefix}Adam/Adam/update_{i}/ResourceApplyAdam:ResourceApplyAdam",
                joins=True,
            )
        )
