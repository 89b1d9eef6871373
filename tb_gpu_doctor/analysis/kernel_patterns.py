r"""Tables of patterns that tell from a kernel's name what it does and how; data, meant to be extended.

Patterns are regular expressions in small letters, searched in the name in small letters (which takes
half the time of ignoring case). They must be linear (no nested repetition), since names come from
files that anybody may have written. Where tables are searched one after the other, the first that matches
decides, so each may rely on those before it.
"""

from __future__ import annotations

from tb_gpu_doctor.traces.classify import COMMUNICATION_KERNELS

MATMUL, CONVOLUTION, ATTENTION = "matmul", "convolution", "attention"
NORMALIZATION, REDUCTION, ELEMENTWISE, COPY = "normalization", "reduction", "elementwise", "copy"
COMMUNICATION, OTHER = "communication", "other"
FAMILIES = (
    MATMUL, CONVOLUTION, ATTENTION, NORMALIZATION, REDUCTION, ELEMENTWISE, COPY, COMMUNICATION, OTHER,
)  # fmt: skip

# Collectives, whatever library they come from.
COMMUNICATION_NAMES = COMMUNICATION_KERNELS

# Names of generated and generic kernels. They may hold a telling word and do something else, since they list the
# ops fused into them (triton_poi_fused_convolution_relu): `SIMPLE_NAMES` alone says what they are.
GENERATED_NAMES = (
    r"^triton_(poi|red|per|for)_",  # TorchInductor: pointwise, reduction, persistent reduction, foreach
    r"^(loop|input|wrapped)_\w*(\.kd)?$",  # XLA's fusions that hold no contraction
    r"^triton_softmax",
    r"__amd_rocclr_",  # ROCm's copy and fill kernels
    r"tensorflow::functor::(fill|batchselect|biasn)|eigenmetakernel",
    r"elementwise_kernel|vectorized_elementwise|::reduce_kernel<|\bmulti_tensor_apply",
)

ATTENTION_NAMES = (
    r"fmha",  # fmha_v2_flash_attention_.., ck_tile::FmhaFwdKernel, aiter::fmha_fwd, cutlass FMHA
    r"flash_?(attn|attention|fwd|bwd|fprop|bprop|infer|mla)|flash::(flash|compute|prepare)",
    r"sdpa",  # cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_..
    r"scaled_dot_product|attention_?kernel|attn_?(fwd|bwd|kernel)|(fwd|bwd)_?attn|_attention(_|\b)",
    r"paged_attention|multi_?head_?attention|\bmha_|(masked|splitkv|decode)_mha|xqa_kernel|kernel_mha",
    r"batch(prefill|decode)with|single(prefill|decode)with",  # FlashInfer
)

CONVOLUTION_NAMES = (
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

MATMUL_NAMES = (
    r"(?<!fb)gemm|gemv|matmul|\bdot_kernel|matvec",  # ampere_sgemm_128x64_nn, gemv2T_kernel_val, gemm_fusion_dot_1
    r"^nvjet",  # cuBLAS on Hopper and Blackwell: nvjet_hsh_128x128_64x6_..
    r"^cijk_",  # Tensile: rocBLAS and hipBLASLt
    r"[shi](884|1688|16816|161616|8816|16832|16864)",  # shapes of tensor-core instructions
    r"wgmma|tcgen05|tensorop|xmma|\bcutlass(::|_)|cublas",
    r"splitk_?reduce|split_?k_kernel",  # second half of a split matmul
    r"^triton_tem_fused\w*_(mm|bmm|addmm|baddbmm)",
    r"^triton_mm|^_?(bmm|addmm|mm)_kernel",
    r"^bmm_\w{0,60}(e4m3|e2m1|bfloat16|fp16)",  # TensorRT-LLM's generated kernels for Blackwell
)

# What is neither a product nor communication, in this order.
SIMPLE_NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        NORMALIZATION,
        (
            r"(batch|layer|instance|group|rms|weight)_?norm|normalization|rmsnorm|gammabetabackward|lrn_",
            r"\bbn_(fw|bw)|batchnorm|::bn_|_bn_(fwd|bwd)|miopen\w{0,20}bn",
            r"softmax",
        ),
    ),
    (
        REDUCTION,
        (
            r"tensorreductionop|reduce|reduction|argm(ax|in)|(row|col|column)_?sum|globalaverage|maxpool|max_pool|avg_?pool",
        ),
    ),
    (
        COPY,
        (
            r"tensor(shuffling|padding|slicing|stridingslicing|concatenation|broadcasting|reverse)op",
            r"transpose|memcpy|copybuffer|fillbuffer|memset|copy_kernel|catarray|concat|swapdimension|permute_?kernel",
            r"(nchw|nhwc)_?to_?(nchw|nhwc)|dynamic_update_slice|^(loop|input|wrapped)_(\w*_)?(slice|copy|pad|concatenate)",
            r"fillfunctor|\bfill_?(kernel|phase)?\b|functor::fill(?!philox)",
        ),
    ),
    (
        ELEMENTWISE,
        (
            r"elementwise|eigenmetakernel|^(loop|wrapped)_|pointwise|^triton_(poi|for)_|multi_tensor_apply|foreach",
            r"functor|biasn|batchselect|dropout|philox(?!cudastate)|relu|gelu|silu|sigmoid|tanh|activation|op_?tensor|scalepackedtensor",
            r"adam|apply_?(momentum|gradient)|\bcast|convert|add_?bias|bias_?add|\baxpby|rotary",
        ),
    ),
)  # fmt: skip

# Elementwise work that a compiler has fused already, as far as it could.
COMPILED_NAMES = (
    r"^triton_",
    r"^(loop|input|wrapped)_\w*(\.kd)?$",
    r"_fusion(_\d+)?(\.kd)?$|^fusion(_\d+)?$",
)
# Kernels that apply one function to every element, whatever their family: casts and copies of PyTorch are among them.
POINTWISE_NAMES = (r"elementwise_kernel",)

# Ops that say what a kernel with a mute name does (the type after the last colon, or the whole op).
OP_TYPES = {
    **dict.fromkeys(
        (
            "matmul", "batchmatmul", "batchmatmulv2", "batchmatmulv3", "_fusedmatmul", "einsum", "aten::mm",
            "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::linear",
        ),
        MATMUL,
    ),
    **dict.fromkeys(
        (
            "conv2d", "conv3d", "_fusedconv2d", "conv2dbackpropinput", "conv2dbackpropfilter", "conv3dbackpropinputv2",
            "conv3dbackpropfilterv2", "depthwiseconv2dnative", "aten::cudnn_convolution", "aten::convolution",
            "aten::convolution_backward", "aten::conv2d",
        ),
        CONVOLUTION,
    ),
    **dict.fromkeys(
        (
            "fusedbatchnorm", "fusedbatchnormv2", "fusedbatchnormv3", "fusedbatchnormgradv3", "softmax", "logsoftmax",
            "aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::cudnn_batch_norm",
            "aten::cudnn_batch_norm_backward", "aten::_softmax", "aten::_log_softmax",
        ),
        NORMALIZATION,
    ),
    **dict.fromkeys(("sum", "mean", "max", "biasaddgrad", "aten::sum", "aten::mean", "aten::max"), REDUCTION),
    **dict.fromkeys(
        (
            "relu", "relugrad", "biasadd", "add", "addv2", "addn", "sub", "mul", "realdiv", "cast", "aten::add",
            "aten::add_", "aten::mul", "aten::mul_", "aten::relu", "aten::gelu", "aten::sigmoid", "aten::tanh",
        ),
        ELEMENTWISE,
    ),
    **dict.fromkeys(
        ("transpose", "concatv2", "split", "slice", "stridedslice", "pad", "tile", "aten::cat", "aten::copy_"), COPY
    ),
}  # fmt: skip
# ... unless the name says that it only moves, casts or adds: ops launch such helpers too.
HELPER_NAMES = (
    r"eigen|fusion|elementwise|reduce|transpose|copy|fill|memset|cast|convert|pad|swap|shuffle|bias|nchw|nhwc",
)

# Kernels whose grid is sized to the chip, or to its links, by design: one block per SM loops
# over the work, so few blocks and a low occupancy are no fault of the caller.
PERSISTENT_NAMES = (
    r"persist",  # CUTLASS's PersistentTileScheduler, RNN_blockPersist, Triton's matmul_kernel_persistent
    r"stream_?k(?!e)",  # stream-K decomposition
    r"^nvjet",  # cuBLAS on Hopper and Blackwell
    r"execute_segment_k",  # cuBLAS's warp-group kernels: sm90_xmma_gemm_.._execute_segment_k_off_kernel
    r"tmawarpspecialized(cooperative|pingpong)|warpspecialized\w{0,20}(cooperative|pingpong)",  # CUTLASS 3 main loops
    r"gemm_?grouped|grouped_?gemm",  # one grid walks a list of problems
    r"deep_gemm::",
    r"^cijk_.*_sk[1-9]",  # hipBLASLt's stream-K variants
    *COMMUNICATION_KERNELS,  # a block per channel
)

# -- Tensor cores ------------------------------------------------------------------------

# Kernels of matmul, convolution and attention that prepare or finish a product, or that have a form for
# which no tensor-core kernel exists (a vector, one channel a group).
NO_PRODUCT_NAMES = (
    r"gemv|matvec|gemmsn_|gemmk1_kernel|\bdot_kernel|reduce_1block|epilogue::impl|quantize|splitk_?reduce|split_?k_kernel",
    r"depthwise|grouped_direct|im[23]d?2?col|col2im|flip_filter|fft[12]d_|pointwise_mult",
    r"winograd\w{0,40}(data|filter|output|delta)|generatewinogradtiles|compute_?offsets",
    r"(nchw|nhwc)_?to_?(nchw|nhwc)|convertq|dotdo|dot_do_|dq_?convert|scale_?packed|seed",
)
# Instructions, shapes and libraries of tensor cores.
TENSOR_CORE_NAMES = (
    r"[shid](884|1688|1684|16816|161616|8816|16832|16864)",  # ampere_fp16_s16816gemm_.., turing_h1688cudnn_..
    r"tensor_?op(?!erator)",  # cutlass_80_tensorop_s1688gemm_..
    r"(?<![a-z])[hiqbd]?mma(?![a-z])|wmma|wgmma|gmma|tcgen05|umma",  # umma: also utcmma
    r"^nvjet",  # cuBLAS on Hopper and Blackwell
    r"^bmm_\w{0,60}(e4m3|e2m1|bfloat16|fp16)",  # TensorRT-LLM
    r"xmma\w{0,40}_(f16f16|bf16bf16|tf32|i8i8|u8u8|i4i4|e4m3|e5m2|f64f64)",
    r"(sm90|sm100|sm103|sm120)_xmma(?!\w{0,40}_f32f32_f32f32)",
    r"flash::|flash_(fwd|bwd|attn|attention|fprop|bprop)|fmha_v2|fmha_cutlass\w{0,12}_(f16|bf16)|deep_gemm::",
    r"cudnn_generated\w{0,80}(wgmma|mma)|fmhasm(90|100|103|120)|_tensor\d+x\d+x\d+",
)
# Products by the ordinary arithmetic units.
PLAIN_NAMES = (
    r"(?<![a-z0-9])[shdcz]gemm(?![a-z])|scudnn|(?<![0-9])hcudnn|dcudnn",  # volta_sgemm_.., ampere_fp16_sgemm_..
    r"simt",
    r"xmma\w{0,40}_f32f32_f32f32",
    r"gemm_kernel[12]x[12]|sgemm_(largek|\d)|magma_\wgemm",
    r"(im|ex)plicit_convolve_[shdc]gemm|precomputed_convolve|dgrad_(alg1_)?engine|wgrad_alg\d_engine|dgrad2d_|wgrad2d_",
)
# Data types by name, in this order.
DATA_TYPE_NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("float8", (r"e4m3|e5m2|(?<![a-z])qmma|fp8|float8|nvjet_(sm\d+_)?q",)),
    ("int8", (r"i8i8|u8u8|i4i4|[si]8816|i16832|i16864|imma(?![a-z])|int8|signed char",)),
    ("bfloat16", (r"bf16|bfloat16|nvjet_(sm\d+_)?t",)),
    (
        "float16",
        (
            r"fp16|(?<![a-z0-9])f16|f16f16|__half|eigen::half|[^a-z]half|h884|h1688|h16|hgemm|hcudnn",
            r"nvjet_(sm\d+_)?h",
        ),
    ),
    ("float64", (r"dgemm|zgemm|d884|d1684|d16816|f64f64|<double|, double|dcudnn|float64",)),
    ("complex64", (r"(?<![a-z0-9])cgemm|float2|complex",)),
    ("tf32", (r"tf32|s1688|nvjet_(sm\d+_)?s",)),
    ("float32", (r"sgemm|scudnn|f32f32|(?<![a-z0-9])f32|<float|, float|float32",)),
)  # fmt: skip
# Data types that tensor cores of every generation take, or that an automatic mixed precision turns into one.
MIXED_PRECISION_TYPES = frozenset({"float32", "float16", "bfloat16"})
