"""What travels between machines gives the same columns back, and is small."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from simulator.large_job import write_job
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.parallel.compact import pack, unpack
from tb_gpu_doctor.parallel.one_file import analyse_file
from tb_gpu_doctor.traces.sessions import find_sessions

DTYPES = ("<i8", "<i4", "<i2", "<i1", "<u1", "<u4", "<u8", "<f4", "<f8", "?")


def same(given: np.ndarray, back: np.ndarray) -> None:
    assert back.dtype == given.dtype and back.shape == given.shape
    assert np.ascontiguousarray(back).tobytes() == np.ascontiguousarray(given).tobytes(), "bit for bit, NaN too"


@given(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: npst.arrays(
            dtype, npst.array_shapes(max_dims=3, max_side=90), fill=npst.from_dtype(np.dtype(dtype))
        )
    )
)
def test_any_array_comes_back_bit_for_bit(array: np.ndarray):
    same(array, unpack(pack(array)))
    same(array.T, unpack(pack(array.T)))
    same(array[::2], unpack(pack(array[::2])))


@pytest.mark.parametrize("dtype", ["<i8", "<i4", "<u4", "<u8", "<i2"])
def test_the_ends_of_the_range(dtype: str):
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.max, 0, info.max, info.min, info.min, 1] * 20, dtype)
    same(ends, unpack(pack(ends)))
    same(np.sort(ends), unpack(pack(np.sort(ends))))


@pytest.mark.parametrize("form", ["xplane", "kineto"])
def test_a_file_comes_back_and_is_small(tmp_path: Path, form: str):
    write_job(tmp_path, form, 1, 20_000)
    (session,) = find_sessions(str(tmp_path)).sessions
    trace, analysis = analyse_file(session.files[0])
    assert trace.device_events.end is not None and "end" in vars(trace.device_events)
    packed = pack((trace, analysis))
    assert len(packed) < len(pickle.dumps((trace, analysis), protocol=5)) / 8
    again, analysed = unpack(packed)
    for kind in ("device_events", "host_events"):
        for spec in fields(getattr(trace, kind)):
            same(getattr(getattr(trace, kind), spec.name), getattr(getattr(again, kind), spec.name))
    for spec in fields(analysis.gaps):
        same(getattr(analysis.gaps, spec.name), getattr(analysed.gaps, spec.name))
    assert (again.strings.blob, again.devices, analysed.accounting) == (
        trace.strings.blob, trace.devices, analysis.accounting,
    )  # fmt: skip
    assert analysed.kernels.rows == analysis.kernels.rows
    with pytest.raises(ValueError, match="read-only"):
        again.host_events.group[0] = 1  # one value for all


def test_errors_travel():
    error = unpack(pack(ProfileError("cut_off", "a/b", offset=7)))
    assert (error.code, error.path, error.params) == ("cut_off", "a/b", {"offset": 7})
