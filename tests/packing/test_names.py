"""Names are replaced for good, always alike, and so that the analyses still understand them."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.host_names import Kind, kind_of
from tb_gpu_doctor.analysis.kernel_families import kernel_family
from tb_gpu_doctor.packing.meaning import meaning, telling_words
from tb_gpu_doctor.packing.names import Names, is_public_word

PUBLIC = (
    "IteratorGetNextOp::DoCompute",
    "IteratorGetNext:IteratorGetNext",
    "cuLaunchKernel",
    "cudaMemcpyAsync",
    "hipModuleLaunchKernel",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    "Iterator::Root::Prefetch::BatchV2::ParallelMapV2::TFRecord",
    "Iterator::Root::ParallelInterleaveV4[0]::FlatMap[3]::TFRecord",
    "all-reduce-start.12",
    "loop_add_fusion_3",
    "aten::scaled_dot_product_attention",
    "ProfilerStep#17",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)",
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
    "Stream #12(Compute,MemcpyH2D)",
    "/device:GPU:3",
    "/host:CPU",
    "Task Environment",
    "Host Threads/1083",
    "EagerLocalExecute: MatMul",
    "torch/nn/modules/linear.py(124): forward",
    "MatMul:MatMul",
    "regs:38 shm:0 grid:160,1,1 block:1024,1,1 occ_pct:100",
    "kind:HtoD size:4096 dest:0 async:1",
    "GPU_0_bfc",
)


@pytest.mark.parametrize("name", PUBLIC)
def test_what_everybody_knows_stays(name: str) -> None:
    assert Names().name(name) == name


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("acmenet/encoder_7/query_proj/MatMul:MatMul", ("acmenet", "encoder_7", "query_proj")),
        ("jit(acme_step)/jit(main)/jvp(AcmeNet)/dense_0/dot_general", ("acme_step", "AcmeNet", "dense_0")),
        ("$acme_trainer_main.py:22 run_acme", ("acme", "run_acme")),
        ("/srv/alice/acme/models/zebra.py(12): forward_zebra", ("alice", "acme", "zebra")),
        ("/srv/alice/torch/zebra.py(12): go", ("alice", "zebra")),
        ("void acme::zebra_kernel<acme::Params>(acme::Params*)", ("acme", "zebra")),
        ("void cutlass::Kernel<acme::SecretGemm>(acme::SecretGemm::Params)", ("acme", "Secret")),
        ("nn.Module: ZebraBlock_3", ("Zebra",)),
        ("Optimizer.step#ZebraOpt.step", ("Zebra",)),
        ("## zebra forward ##", ("zebra",)),
        ("__inference_zebra_step_1234", ("zebra",)),
        ("jit_zebra_step(123)", ("zebra",)),
        ("connect to 10.20.30.40:8000 failed", ("10.20.30.40",)),
        ("Código/señal_β:MatMul", ("Código", "señal")),
    ],
)
def test_private_words_go(name: str, secret: tuple[str, ...]) -> None:
    names = Names()
    new = names.name(name)
    assert not [word for word in secret if word in new], new
    assert meaning(new) == meaning(name)
    assert not names.unsure


def test_a_loader_stays_a_loader() -> None:
    names = Names()
    new = names.name("$acme_data_loader.py:12 next_batch")
    assert "acme" not in new
    assert kind_of(new) == kind_of("$acme_data_loader.py:12 next_batch") == Kind.INPUT


def test_a_kernel_keeps_its_family_and_loses_its_owner() -> None:
    new = Names().name("acme_flash_attention_v9_kernel", kernel=True)
    assert "acme" not in new
    assert kernel_family(new) == kernel_family("acme_flash_attention_v9_kernel") == "attention"


def test_same_words_are_the_same_everywhere() -> None:
    names = Names()
    assert names.name("alpha/beta/MatMul:MatMul").split("/")[:2] == names.name("alpha/beta").split("/")
    assert names.name("beta") in names.name("gamma/beta/Relu:Relu")


def test_the_order_of_meeting_decides_so_nothing_can_be_looked_up() -> None:
    one, other = Names(), Names()
    assert one.name("zebra") == other.name("giraffe")


_WORDS = st.text(string.ascii_letters + "_", min_size=1, max_size=12)
_NAMES = st.lists(
    st.one_of(_WORDS, st.sampled_from(["/", ":", "::", "$", ".py:1 ", ".", "(", ")", "<", ">", " ", "3"]))
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(_NAMES.map("".join), min_size=1, max_size=6))
def test_different_names_stay_different_and_mean_the_same(given_names: list[str]) -> None:
    names = Names()
    found = {name: names.name(name) for name in given_names}
    assert len(set(found.values())) == len(found)
    for name, new in found.items():
        assert names.name(name) == new
        if name not in names.unsure:
            assert meaning(new) == meaning(name)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_replaced(data: bytes) -> None:
    names = Names()
    new = names.raw(data)
    assert new.decode() or not data
    assert names.raw(data) == new


def test_hosts_keep_their_order_their_form_and_their_company() -> None:
    names = Names()
    names.learn_hosts(["node-2_4711", "node-10.cluster.acme.com", "node-10", "10.0.0.7:6003", "worker0", "rank3"])
    found = [names.host(host) for host in ("node-2_4711", "node-10.cluster.acme.com", "node-10", "10.0.0.7:6003")]
    assert found[0].startswith("host1_")
    assert found[0] != "host1_4711"
    assert found[1].split(".")[0] == found[2] == "host2"
    assert found[3] == "host3:6003"
    assert names.host("NODE-10") == "host2"
    assert (names.host("worker0"), names.host("rank3")) == ("worker0", "rank3")
    assert names.name("cannot reach node-10 now") == f"cannot {names.name('reach')} host2 {names.name('now')}"


def test_a_file_called_after_a_word_makes_no_host_of_the_word() -> None:
    names = Names()
    names.learn_hosts(["train", "trace", "zeus"])
    assert names.host("train") == "host1"
    assert names.name("train") == "train" and names.name("train_step") == Names().name("train_step")
    assert names.host_names() == ["zeus"]


def test_processes_are_numbered_and_gpus_are_not() -> None:
    names = Names()
    names.learn_pids([5_000, 70_000])
    assert names.pid(70_000) == names.pid(5_000) + 1
    assert names.pid(7) == 7


def test_public_words_are_no_trap() -> None:
    assert is_public_word("MatMul_12")
    assert is_public_word("loop_add_fusion")
    assert not is_public_word("alice")
    assert not is_public_word("encoder_12")
    assert not is_public_word("acme_add")


def test_telling_words_are_words() -> None:
    pattern = telling_words()
    assert pattern.search("my_data_loader")
    assert not pattern.search("zzz")
    assert all(len(word) >= 3 for word in pattern.pattern.split("|"))


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("nccl:all_reduce", True), ("nccl:_all_gather_base", True), ("nccl:all_to_all", True), ("gloo:broadcast", True),
        ("nccl:send 0->1", True), ("nccl:zebra", False), ("nccl:all_reduce_zebra", False), ("nccl:zebra_send", False),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32", True), ("bmm_Zebra_fused", False),
    ],
)  # fmt: skip
def test_only_what_a_library_can_be_calling_stays(name: str, stays: bool) -> None:
    assert (Names().name(name) == name) is stays and ("zebra" in Names().name(name).lower()) is False


@pytest.mark.parametrize(
    "name", ["x" * 60_000, "zebra_" * 10_000, "nccl:" + "alltoall" * 7_000 + "!", "a::b::" * 9_000]
)
def test_no_name_takes_long(name: str) -> None:
    start = time.process_time()
    Names().name(name)
    assert time.process_time() - start < 10, "a name whose length counts twice takes minutes"
