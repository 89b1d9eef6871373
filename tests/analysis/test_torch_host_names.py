"""What PyTorch's names say: operators, frames of its Python tracer, loaders."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.analysis import torch_host_names
from tb_gpu_doctor.analysis.host_names import Kind, kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ProfilerStep", Kind.NEUTRAL),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", Kind.INPUT),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Kind.INPUT),
        ("torch/utils/data/dataloader.py(733): __next__", Kind.INPUT),
        ("torch/utils/data/_utils/fetch.py(54): fetch", Kind.INPUT),
        ("/project/my_loader.py(20): next_batch", Kind.INPUT),
        ("nvidia/dali/plugin/pytorch/__init__.py(300): __next__", Kind.INPUT),
        ("cudaStreamSynchronize", Kind.SYNC),
        ("cudaDeviceSynchronize", Kind.SYNC),
        ("hipMemcpyWithStream", Kind.SYNC),
        ("aten::item", Kind.SYNC),
        ("aten::_local_scalar_dense", Kind.SYNC),
        ("torch/cuda/__init__.py(975): synchronize", Kind.SYNC),
        ("<built-in method item of Tensor object at 0x7fdc681d0910>", Kind.SYNC),
        ("<built-in method cpu of Tensor object at 0x7fdc681d0910>", Kind.SYNC),
        ("aten::addmm", Kind.LAUNCH),
        ("autograd::engine::evaluate_function: AddmmBackward0", Kind.LAUNCH),
        ("torch::autograd::AccumulateGrad", Kind.LAUNCH),
        ("MseLossBackward0", Kind.LAUNCH),
        ("Optimizer.step#SGD.step", Kind.LAUNCH),
        ("DistributedDataParallel.forward", Kind.LAUNCH),
        ("nccl:all_reduce", Kind.LAUNCH),
        ("c10d::allreduce_", Kind.LAUNCH),
        ("cudaLaunchKernelExC", Kind.LAUNCH),
        ("hipExtModuleLaunchKernel", Kind.LAUNCH),
        ("Torch-Compiled Region: 0/0", Kind.LAUNCH),
        ("TorchDynamo Cache Lookup", Kind.LAUNCH),
        ("## Call CompiledFxGraph fud64j ##", Kind.LAUNCH),
        ("nn.Module: Linear_0", Kind.LAUNCH),
        ("torch/nn/modules/module.py(1743): _call_impl", Kind.LAUNCH),
        ("torch/optim/optimizer.py(480): wrapper", Kind.LAUNCH),
        ("torch/_dynamo/eval_frame.py(574): _fn", Kind.LAUNCH),
        ("torch/_inductor/codecache.py(1160): __call__", Kind.LAUNCH),
        ("torch/_dynamo/convert_frame.py(1200): _compile", Kind.COMPILE),
        ("torch/_inductor/compile_fx.py(700): _compile_fx_inner", Kind.COMPILE),
        ("triton/compiler/compiler.py(220): compile", Kind.COMPILE),
        ("torch/serialization.py(850): save", Kind.CHECKPOINT),
        ("torch/distributed/checkpoint/state_dict_saver.py(90): save", Kind.CHECKPOINT),
        ("transformers/modeling_utils.py(2700): save_pretrained", Kind.CHECKPOINT),
        ("torch/utils/tensorboard/writer.py(350): add_scalar", Kind.CHECKPOINT),
        ("<built-in function isinstance>", Kind.NEUTRAL),
        ("threading.py(359): wait", Kind.HOST_OTHER),
        ("queue.py(154): get", Kind.HOST_OTHER),
        ("<built-in function sleep>", Kind.HOST_OTHER),
        ("<built-in method acquire of _thread.lock object at 0x7f0000000000>", Kind.HOST_OTHER),
        ("multiprocessing/queues.py(113): get", Kind.HOST_OTHER),
        ("gloo:all_reduce", Kind.HOST_OTHER),
        ("contextlib.py(132): __enter__", Kind.NEUTRAL),
        ("torch/utils/_contextlib.py(117): decorate_context", Kind.NEUTRAL),
        ("torch/distributed/elastic/multiprocessing/errors/__init__.py(355): wrapper", Kind.NEUTRAL),
        ("torch/profiler/profiler.py(821): step", Kind.NEUTRAL),
        # the user's own: what encloses it decides
        ("train.py(42): main", Kind.UNKNOWN_NAME),
        ("transformers/models/bert/modeling_bert.py(250): transpose_for_scores", Kind.UNKNOWN_NAME),
        ("flashinfer_wrapper/autotuner.py(718): _get_cache_key", Kind.UNKNOWN_NAME),
        ("LinearWithGradAccumulationAndAsyncCommunication", Kind.UNKNOWN_NAME),
        ("my own label", Kind.UNKNOWN_NAME),
    ],
)
def test_kinds(name: str, kind: Kind) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("train.py(42): main", True),
        ("/project of mine/train.py(42): main", True),
        ("transformers/trainer.py(2000): train", True),
        ("torch/nn/modules/module.py(1743): _call_impl", False),
        ("threading.py(359): wait", False),
        ("<built-in function isinstance>", False),
        ("<frozen importlib._bootstrap>(1390): _handle_fromlist", False),
        ("$train.py:42 main", False),
        ("aten::addmm", False),
    ],
)
def test_frames_of_the_user(name: str, own: bool) -> None:
    assert bool(torch_host_names.USER_FRAME.match(name)) == own


def test_the_kinds_of_the_tables_exist() -> None:
    for kind, patterns in (*torch_host_names.FRAMES, *torch_host_names.NAMES):
        assert kind in Kind.__members__ and patterns


def test_a_hostile_name_takes_no_time() -> None:
    for name in ("a/" * 40_000 + ".py(1): x", "<" * 90_000, "x" * 90_000 + ".py(", "data" * 30_000, "w " * 50_000):
        assert kind_of(name) in tuple(Kind)
