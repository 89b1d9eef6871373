"""NVTX ranges of Nsight Systems' exports: what their texts name, and which of them are steps. Tables are data."""

from __future__ import annotations

import re
from typing import NamedTuple

# What PyTorch appends to an operator's name: `aten::addmm, seq = 812, op_id = 991065, sizes = [[8, 512]]`.
APPENDED = (", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = ")
# `iteration 12`, `Iteration_12`, `step12`, `train_step#3`, `ProfilerStep#5`, `Training step: 4`, `global_step=7`.
_NUMBERED_STEP = re.compile(
    r"^(?P<name>(?:[\w./ ]{0,40}?[\W_])??(?:ProfilerStep|train(?:ing)?[ _-]?step|global[ _-]?step|step|iter(?:ation)?|"
    r"batch|minibatch|train(?:ing)?[ _-]?(?:iter(?:ation)?|batch)))[\s#_:=-]{0,3}(?P<number>\d{1,15})$",
    re.IGNORECASE,
)
_PLAIN_STEP = re.compile(
    r"^(?:train(?:ing)?[ _-]?(?:step|iter(?:ation)?|batch)|(?:full|whole|one)[ _-]?(?:step|iteration)|step|iteration|"
    r"TSL:XlaModule:#hlo_module=\w*(?:train|step|update)\w*)$",
    re.IGNORECASE,
)
# XLA's: the module once a call, its thunks inside.
_MODULE = re.compile(r"^TSL:XlaModule:#hlo_module=(?P<module>[^,#]{1,256})")
_THUNK = re.compile(r"^TSL:Thunk:#(?:name=(?P<name>[^#]{1,1024}?),)?hlo_op=(?P<op>[^,#]{1,256})")
_OPERATOR = re.compile(
    r"^(?:aten|prims|prim|torchvision|torchaudio|_?c10d(?:_functional)?|nccl|inductor|quantized)::?\w|^\w+Backward\d*$"
)
_NO_OPERATOR = ("autograd::engine::",)


class Range(NamedTuple):
    """What the text of a range says.

    Attributes:
        name: of the event.
        step: number of a step; -1 for what is none, -2 for a step without a number.
        is_operator: whether it is a framework's operator.
        op: the framework's op that the calls inside work for, where another text than ``name`` tells it.
    """

    name: str
    step: int = -1
    is_operator: bool = False
    op: str | None = None


def read_range(text: str) -> Range:
    """What the text of a range says; steps of one kind get one name."""
    for mark in APPENDED:
        text = text.partition(mark)[0]
    if (found := _NUMBERED_STEP.match(text)) is not None:
        return Range(found["name"].strip() or "step", int(found["number"]))
    if (found := _MODULE.match(text)) is not None:
        return Range(f"TSL:XlaModule:#hlo_module={found['module']}")
    if _PLAIN_STEP.match(text):
        return Range(text, -2)
    if (found := _THUNK.match(text)) is not None:
        return Range(f"Thunk {found['op']}", is_operator=True, op=found["name"] or found["op"])
    is_operator = bool(_OPERATOR.match(text)) and not text.startswith(_NO_OPERATOR)
    return Range(text, is_operator=is_operator)
