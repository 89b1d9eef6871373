"""Names to tensor-core classes, over the families of libraries from Volta to Blackwell."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.analysis.kernel_families import (
    FAMILIES,
    TENSOR_CLASSES,
    has_tensor_cores,
    kernel_family,
    takes_tf32,
    tensor_use,
)
from tb_gpu_doctor.traces.columns import Device


@pytest.mark.parametrize(
    ("name", "state", "data_type"),
    [
        # cuBLAS
        ("volta_sgemm_128x64_nn", "unused", "float32"),
        ("ampere_sgemm_32x128_tn", "unused", "float32"),
        ("volta_fp16_sgemm_fp16_32x32_sliced1x4_nn", "unused", "float16"),
        ("volta_h884gemm_64x64_ldg8_nn", "used", "float16"),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "used", "float16"),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "used", "float16"),
        ("ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_tn", "used", "float16"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "used", "bfloat16"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4", "unused", "float32"),  # noqa: E501
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize192x128x32_stage4_tensor16x8x16_kernel", "used", "float16"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32_warpgroupsize1x1x1", "used", "tf32"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute_segment_k_off_kernel", "used", "bfloat16"),  # noqa: E501
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128", "used", "float8"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "used", "float16"),
        ("nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT", "used", "bfloat16"),
        ("nvjet_qsh_192x128_128x5_1x2_h_bz_coopB_TNN", "used", "float8"),
        ("volta_dgemm_64x64_nn", "not_eligible", "float64"),
        ("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", "used", "float64"),
        ("volta_cgemm_32x32_tn", "not_eligible", "complex64"),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>", "not_eligible", "float32"),  # noqa: E501
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float>", "not_eligible", "float32"),
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>", "not_eligible", "float32"),
        # CUTLASS
        ("cutlass_80_simt_sgemm_128x128_8x4_nt_align1", "unused", "float32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>", "used", "tf32"),
        ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8", "used", "bfloat16"),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<MainloopSm90TmaGmmaWarpSpecialized>>", "used", None),  # noqa: E501
        # cuDNN
        ("volta_scudnn_128x64_relu_interior_nn_v1", "unused", "float32"),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "unused", "float32"),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, true, true>", "unused", "float32"),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>", "unused", "float32"),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>", "unused", "float32"),
        ("turing_h1688cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1", "used", "float16"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16", "used", "tf32"),
        ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8", "unused", "float32"),
        ("sm90_xmma_wgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "used", "bfloat16"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s16816fprop_optimized_f16_128x128_64x3_nhwc_align8>", "used", "float16"),  # noqa: E501
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "not_eligible", "float32"),
        ("void cudnn::cnn::im2col4d_kernel<float, long>", "not_eligible", "float32"),
        ("void cudnn::cnn::wgrad2d_grouped_direct_kernel<float, float, int, float, float, 0, 1>", "not_eligible", "float32"),  # noqa: E501
        ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<5, float, int>", "not_eligible", "float32"),  # noqa: E501
        # attention
        ("fmha_v2_flash_attention_bf16_64_128_S_q_kv_128_sm90_kernel", "used", "bfloat16"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::half_t>>", "used", "float16"),  # noqa: E501
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::DynamicPersistentTileScheduler>>", "used", None),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", "used", "float16"),
        ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", "used", "float8"),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "used", "float16"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "unknown", "float32"),
        # compilers, and names that say nothing
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b", "used", "float8"),
        ("gemm_fusion_dot_12", "unknown", None),
        ("triton_tem_fused_addmm_4", "unknown", None),
        ("gemma_matmul_kernel", "unknown", None),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_1LDSB0.kd", "unknown", None),
        # no products
        ("loop_add_fusion", "not_eligible", None),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "not_eligible", None),
    ],
)  # fmt: skip
def test_names(name: str, state: str, data_type: str | None) -> None:
    use = tensor_use(name, kernel_family(name))
    assert (use.state, use.data_type) == (state, data_type)


@pytest.mark.parametrize("part", ["xmma", "cudnn_generated", "winograd", "fmha_cutlass", "1688", "mma", "\n", "é"])
def test_long_names_end(part: str) -> None:
    for family in FAMILIES:
        assert tensor_use(part * (100_000 // len(part)), family).state in TENSOR_CLASSES


@pytest.mark.parametrize(
    ("device", "has", "tf32"),
    [
        (Device(0, "h", 0, compute_capability=(6, 1), vendor="Nvidia"), False, False),
        (Device(0, "h", 0, compute_capability=(7, 0)), True, False),
        (Device(0, "h", 0, compute_capability=(7, 5), sm_count=40, name="Tesla T4"), True, False),
        (Device(0, "h", 0, compute_capability=(7, 5), sm_count=22, name="GeForce GTX 1660"), False, False),
        (Device(0, "h", 0, compute_capability=(7, 5)), None, False),
        (Device(0, "h", 0, compute_capability=(8, 0), sm_count=108), True, True),
        (Device(0, "h", 0, compute_capability=(12, 0), sm_count=170), True, True),
        (Device(0, "h", 0, compute_capability=(9, 4), vendor="AMD", sm_count=304), None, False),
        (Device(0, "h", 0), None, False),
    ],
)
def test_which_gpus_have_them(device: Device, has: bool | None, tf32: bool) -> None:
    assert has_tensor_cores(device) is has
    assert takes_tf32(device) is tf32
