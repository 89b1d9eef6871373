"""Products without tensor cores: shares, causes, advice by GPU and framework, and when nothing is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpu_doctor import diagnose
from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.diagnosis.rules.tensor_cores_unused import check
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.report.sentences import say
from tests.diagnosis.build import kernel, profile
from tests.diagnosis.test_rules import only
from tests.hosts import AnalysedFile, context_of, diagnosed

T = Thresholds()


def product(
    state: str | None, ms: float, name: str = "sgemm", data_type: str | None = "float32", device: int = 0
) -> KernelRow:
    made = kernel(name, device, occupancy=0.5, in_window_ms=ms, family="matmul")
    return replace(made, tensor_cores=state, data_type=data_type)


def on(capability: tuple[int, int], rows: Sequence[KernelRow], gpus: int = 1) -> AnalysedFile:
    made = profile(gpus, kernels=rows)
    devices = tuple(replace(device, compute_capability=capability) for device in made.trace.devices)
    return replace(made, trace=replace(made.trace, devices=devices))


@pytest.mark.parametrize(
    ("ms", "severity"),
    [(49, None), (51, "info"), (199, "info"), (201, "warning"), (900, "warning")],
)
def test_it_speaks_from_its_thresholds_on(ms: float, severity: str | None) -> None:
    rows = [product("unused", ms), kernel("other", in_window_ms=950 - ms)]
    found = [f for f in diagnosed([on((8, 0), rows)]).findings if f.kind == "tensor_cores_unused"]
    assert [f.severity for f in found] == ([severity] if severity else [])
    if severity:
        assert found[0].share == pytest.approx(ms / 1000) and found[0].saving_ps_per_step is None


def test_many_small_kernels_count_together() -> None:
    rows = [replace(product("unused", 5, f"sgemm{i}"), share=0.005) for i in range(60)]
    finding = only(diagnosed([on((8, 0), rows)]), "tensor_cores_unused")
    assert finding.share == pytest.approx(0.3) and finding.explanation[0].params["count"] == 60


def test_the_share_of_the_products_and_the_unknown_part() -> None:
    rows = [product("unused", 300), product("used", 300, "nvjet"), product("unknown", 200, "gemm_fusion", None),
            product("not_eligible", 100, "gemv")]  # fmt: skip
    finding = only(diagnosed([on((9, 0), rows)]), "tensor_cores_unused")
    facts = finding.explanation[0].params
    assert facts["of_products"] == pytest.approx(3 / 8) and facts["unknown"] == pytest.approx(2 / 8)
    assert [phrase.key.rsplit(".", 2)[-1] for phrase in finding.explanation] == ["explanation", "precision", "unknown"]
    sure = only(diagnosed([on((9, 0), rows[:2])]), "tensor_cores_unused")
    assert [phrase.key.rsplit(".", 2)[-1] for phrase in sure.explanation] == ["explanation", "precision"]


def test_the_gpus_that_it_concerns() -> None:
    rows = [product("unused", 400, device=1), product("used", 400, "nvjet", device=0)]
    finding = only(diagnosed([on((9, 0), rows, gpus=2)]), "tensor_cores_unused")
    assert [gpu.id for gpu in finding.gpus] == [1] and finding.share == pytest.approx(0.4)


def test_nothing_is_said_without_tensor_cores_or_products() -> None:
    for rows in (
        [product(None, 900)],
        [product("unknown", 900)],
        [product("used", 900)],
        [product("not_eligible", 900)],
    ):
        assert list(check(context_of(on((8, 0), rows)))) == []


@pytest.mark.parametrize(
    ("capability", "data_type", "cause", "advice"),
    [
        ((7, 0), "float32", "precision", ["float16_pytorch", "loss_scaling_pytorch", "multiples"]),
        ((8, 6), "float32", "precision", ["bfloat16_pytorch", "tf32_pytorch", "multiples"]),
        ((8, 6), "float16", "shape", ["multiples", "newer"]),
    ],
)
def test_advice_fits_the_gpu_and_the_type(
    capability: tuple[int, int], data_type: str, cause: str, advice: list[str]
) -> None:
    made = on(capability, [product("unused", 400, data_type=data_type)])
    made = replace(made, trace=replace(made.trace, format="kineto"))
    (finding,) = check(context_of(made))
    assert finding.cause == cause
    assert [phrase.key.removeprefix("findings.tensor_cores_unused.advice.") for phrase in finding.advice] == advice
    for lang in ("en", "es"):
        for phrase in (finding.title, *finding.explanation, *finding.advice):
            assert "{" not in say(phrase, lang).split("```")[0]


def test_a_real_run_in_float32_on_v100(shared_traces: Path) -> None:
    path = shared_traces / "kineto_diff_test_v100"
    if not path.is_dir():
        pytest.skip("recorded profile not present (kineto_diff_test_v100)")
    report = diagnose(str(path)).to_dict("en")
    (finding,) = [f for f in report["findings"] if f["kind"] == "tensor_cores_unused"]
    # sgemm kernels of this file take 199.152 ms of the 712.706 ms between its first and last event, some beside others
    assert (finding["severity"], finding["cause"]) == ("warning", "precision")
    assert finding["share"] == pytest.approx(0.275, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    ["kineto_diff_control_a100", "kineto_megatron_tp8_a100", "kineto_eager_b200", "kineto_bert_small_h100",
     "kineto_resnet50_loader0_v100", "kineto_minitoy_mi250", "jax_te_attention", "xla_2xgtx1080ti", "tf_bert_8gpu"],
)  # fmt: skip
def test_real_runs_that_use_them_or_do_not_tell(folder: str, shared_traces: Path) -> None:
    path = shared_traces / folder
    if not path.is_dir():
        pytest.skip(f"recorded profile not present ({folder})")
    assert "tensor_cores_unused" not in [f["kind"] for f in diagnose(str(path)).to_dict("en")["findings"]]
