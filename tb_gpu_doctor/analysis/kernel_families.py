r"""What kind of work a kernel does, told from its name: tables of patterns, meant to be extended.

Patterns are regular expressions in small letters, searched in the name in small letters (which takes
half the time of ignoring case). They must be linear
(no nested repetition), since names come from files that anybody may have written.
The first table that matches decides, so each may rely on those before it.
"""

from __future__ import annotations

import re
from functools import lru_cache

MATMUL, CONVOLUTION, ATTENTION, COMMUNICATION, OTHER = (
    "matmul",
    "convolution",
    "attention",
    "communication",
    "other",
)

# The marks below stand near the front of a name; template arguments may go on for kilobytes.
_NAME_LIMIT = 4096

# Collectives, whatever library they come from.
_COMMUNICATION = (
    r"^(void )?[nr]ccl",  # ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclKernel_.., rccl
    r"\bnccl(dev)?kernel",
    r"nvshmem|deep_ep::",  # device-side communication of expert parallelism
    r"(one|two)_shot_all_?reduce|cross_device_reduce_[12]stage|quickreduce::",  # custom all-reduces of serving stacks
)

# Names that hold a telling word but do something else: generated element-wise and reduction
# kernels are named after the ops fused into them (triton_poi_fused_convolution_relu).
_ELEMENTWISE = (
    r"^triton_(poi|red|per|for)_",  # TorchInductor: pointwise, reduction, persistent reduction, foreach
    r"^(loop|input|wrapped)_\w*(\.kd)?$",  # XLA's fusions that hold no contraction
    r"^triton_softmax",
    r"__amd_rocclr_",  # ROCm's copy and fill kernels
    r"tensorflow::functor::(fill|batchselect|biasn)|eigenmetakernel",
    r"elementwise_kernel|vectorized_elementwise|::reduce_kernel<|\bmulti_tensor_apply",
)

_ATTENTION = (
    r"fmha",  # fmha_v2_flash_attention_.., ck_tile::FmhaFwdKernel, aiter::fmha_fwd, cutlass FMHA
    r"flash_?(attn|attention|fwd|bwd|fprop|bprop|infer|mla)|flash::(flash|compute|prepare)",
    r"sdpa",  # cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_..
    r"scaled_dot_product|attention_?kernel|attn_?(fwd|bwd|kernel)|(fwd|bwd)_?attn|_attention(_|\b)",
    r"paged_attention|multi_?head_?attention|\bmha_|(masked|splitkv|decode)_mha|xqa_kernel|kernel_mha",
    r"batch(prefill|decode)with|single(prefill|decode)with",  # FlashInfer
)

_CONVOLUTION = (
    r"implicit_convolve|explicit_convolve|implicit_gemm|implicitgemm|convolve_",
    # cuDNN: volta_scudnn_128x64_relu_.., turing_h1688cudnn_256x64_.., ampere_scudnn_winograd_..
    r"(s|h|i|d|[0-9])cudnn_",
    r"cudnn::(cnn|detail::(implicit|explicit|conv|dgrad|wgrad|winograd|pointwise_mult))|cudnn::winograd",
    r"xmma_(fprop|dgrad|wgrad)|(fprop|dgrad|wgrad)_(implicit|indexed|optimized|analytic|engine)",
    r"winograd|im[23]d?2?col|col2im|flip_filter|fft[12]d_[rc]2[rc]",  # transforms that only convolutions use
    r"conv[123]d|depthwise_?conv|conv_?(fwd|bwd|fprop|dgrad|wgrad|depthwise|implicit)",
    r"convolution(fwd|bwd|forward|backward|_|\b|kernel)|gridwise_conv|naive_conv|direct_conv|asmconv",  # and MIOpen
    r"miopen\w{0,40}conv(?!ert)|dgrad2d_|wgrad2d_|dgrad_engine|wgrad_alg|convforward|convbackward",
    r"::conv::|conv_mma|gcnasmconv|igemm_(fwd|bwd|wrw)",
)

_MATMUL = (
    r"gemm|gemv|matmul|\bdot_kernel|matvec",  # ampere_sgemm_128x64_nn, gemv2T_kernel_val, gemm_fusion_dot_1
    r"^nvjet",  # cuBLAS on Hopper and Blackwell: nvjet_hsh_128x128_64x6_..
    r"^cijk_",  # Tensile: rocBLAS and hipBLASLt
    r"[shi](884|1688|16816|161616|8816|16832|16864)",  # shapes of tensor-core instructions
    r"wgmma|tcgen05|tensorop|xmma|\bcutlass(::|_)|cublas",
    r"splitk_?reduce|split_?k_kernel",  # second half of a split matmul
    r"^triton_tem_fused\w*_(mm|bmm|addmm|baddbmm)",
    r"^triton_mm|^_?(bmm|addmm|mm)_kernel",
)

# Ops that say what a kernel with a mute name does (the type after the last colon, or the whole op).
_OP_TYPES = {
    "matmul": MATMUL,
    "batchmatmul": MATMUL,
    "batchmatmulv2": MATMUL,
    "batchmatmulv3": MATMUL,
    "_fusedmatmul": MATMUL,
    "einsum": MATMUL,
    "aten::mm": MATMUL,
    "aten::bmm": MATMUL,
    "aten::addmm": MATMUL,
    "aten::baddbmm": MATMUL,
    "aten::linear": MATMUL,
    "conv2d": CONVOLUTION,
    "conv3d": CONVOLUTION,
    "_fusedconv2d": CONVOLUTION,
    "conv2dbackpropinput": CONVOLUTION,
    "conv2dbackpropfilter": CONVOLUTION,
    "conv3dbackpropinputv2": CONVOLUTION,
    "conv3dbackpropfilterv2": CONVOLUTION,
    "depthwiseconv2dnative": CONVOLUTION,
    "aten::cudnn_convolution": CONVOLUTION,
    "aten::convolution": CONVOLUTION,
    "aten::convolution_backward": CONVOLUTION,
    "aten::conv2d": CONVOLUTION,
}
# ... unless the name says that it only moves, casts or adds: ops launch such helpers too.
_HELPER = r"eigen|fusion|elementwise|reduce|transpose|copy|fill|memset|cast|convert|pad|swap|shuffle|bias|nchw|nhwc"

# Kernels whose grid is sized to the chip, or to its links, by design: one block per SM loops
# over the work, so few blocks and a low occupancy are no fault of the caller.
_PERSISTENT = (
    r"persist",  # CUTLASS's PersistentTileScheduler, RNN_blockPersist, Triton's matmul_kernel_persistent
    r"stream_?k(?!e)",  # stream-K decomposition
    r"^nvjet",  # cuBLAS on Hopper and Blackwell
    r"execute_segment_k",  # cuBLAS's warp-group kernels: sm90_xmma_gemm_.._execute_segment_k_off_kernel
    r"tmawarpspecialized(cooperative|pingpong)|warpspecialized\w{0,20}(cooperative|pingpong)",  # CUTLASS 3 main loops
    r"gemm_?grouped|grouped_?gemm",  # one grid walks a list of problems
    r"deep_gemm::",
    r"^cijk_.*_sk[1-9]",  # hipBLASLt's stream-K variants
    r"^(void )?[nr]ccl|\bnccl(dev)?kernel|nvshmem|deep_ep::",  # a block per channel
    r"(one|two)_shot_all_?reduce|cross_device_reduce_[12]stage|quickreduce::",
)


def _any(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


_TABLES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (COMMUNICATION, _any(_COMMUNICATION)),
    (OTHER, _any(_ELEMENTWISE)),
    (ATTENTION, _any(_ATTENTION)),
    (CONVOLUTION, _any(_CONVOLUTION)),
    (MATMUL, _any(_MATMUL)),
)
_HELPER_RE = re.compile(_HELPER)
_PERSISTENT_RE = _any(_PERSISTENT)


@lru_cache(maxsize=8192)
def kernel_family(name: str, op: str = "") -> str:
    """``matmul``, ``convolution``, ``attention``, ``communication`` or ``other``.

    Args:
        name: of the kernel, mangled or not.
        op: framework op that launched it; asked only when the name says nothing.
    """
    family, may_ask = _family_of_name(name)
    if family is not None:
        return family
    if op and may_ask:
        # "scope/MatMul:MatMul" carries the type after the last single colon; "aten::mm" has none.
        kind = op[-256:].lower()
        if not kind.startswith("aten::"):
            kind = kind.rsplit(":", 1)[-1]
        return _OP_TYPES.get(kind, OTHER)
    return OTHER


@lru_cache(maxsize=8192)
def _family_of_name(name: str) -> tuple[str | None, bool]:
    """What the name says (a name may come with a million ops), and whether its op may say more."""
    name = name[:_NAME_LIMIT].lower()
    for family, pattern in _TABLES:
        if pattern.search(name):
            return family, False
    return None, _HELPER_RE.search(name) is None


@lru_cache(maxsize=8192)
def is_persistent(name: str) -> bool:
    """Whether the kernel's grid is sized to the chip by design, so that it cannot be "too small"."""
    return _PERSISTENT_RE.search(name[:_NAME_LIMIT].lower()) is not None
