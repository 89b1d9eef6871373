"""Blocks of samples and steps: exact round trips, and nothing but `DamagedBlock` from anything else."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tb_gpu_doctor.recording_format import (
    MAX_TICKS,
    DamagedBlock,
    decode_samples,
    encode_samples,
    encode_steps,
    join_steps,
    step_deltas,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(st.just(np.nan), st.floats(allow_nan=True), st.integers(-(2**53), 2**53).map(float))


@given(st.data())
def test_samples_come_back_bit_for_bit(data: st.DataObject) -> None:
    values = data.draw(arrays(np.float64, array_shapes(min_dims=3, max_dims=3, max_side=6), elements=VALUES))
    ticks = values.shape[2]
    wall_ns = data.draw(arrays(np.int64, ticks, elements=INT64))
    step = data.draw(arrays(np.int64, ticks, elements=INT64))
    block = decode_samples(encode_samples(wall_ns, step, values))
    assert block.gpus == values.shape[1]
    assert (block.wall_ns == wall_ns).all() and (block.step == step).all()
    for index, column in enumerate(values):
        if np.isnan(column).all():
            assert index not in block.columns
        else:
            assert np.array_equal(block.columns[index].astype(np.float64), column, equal_nan=True)


def test_counters_keep_all_their_digits_and_small_numbers_little_room() -> None:
    values = np.array([[[2.0**53 - 1]], [[97.0]]])
    columns = decode_samples(encode_samples(np.zeros(1, np.int64), np.zeros(1, np.int64), values)).columns
    assert columns[0].dtype.itemsize == 8 and columns[0][0, 0] == 2.0**53 - 1
    assert columns[1].dtype.itemsize == 4


@given(st.lists(st.integers(0, 30).flatmap(lambda count: arrays(np.int64, (5, count), elements=INT64)), max_size=6))
def test_steps_come_back(blocks: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]) -> None:
    joined = join_steps([step_deltas(encode_steps(rows)) for rows in blocks])
    assert (joined == np.concatenate([np.zeros((5, 0), np.int64), *blocks], axis=1)).all()


@given(st.binary(max_size=200), st.booleans())
def test_anything_else_is_damaged(content: bytes, with_magic: bool) -> None:
    for magic, decode in ((b"GDs1", decode_samples), (b"GDt1", step_deltas)):
        with pytest.raises(DamagedBlock):
            decode((magic if with_magic else b"") + content)


@given(st.data())
def test_one_flipped_bit_is_noticed(data: st.DataObject) -> None:
    values = np.arange(24.0).reshape(2, 3, 4)
    block = bytearray(encode_samples(np.arange(4), np.arange(4), values))
    at = data.draw(st.integers(14, len(block) - 1))
    block[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = decode_samples(bytes(block))
    except DamagedBlock:
        return
    # A bit that zlib does not look at, such as its level's.
    assert np.array_equal(found.columns[0], values[0])


def test_sizes_that_would_fill_the_memory_are_refused_before_anything_is_unpacked() -> None:
    bomb = zlib.compress(b"\0" * (1 << 20))
    for ticks, gpus, n32, n64 in ((MAX_TICKS, 1024, 256, 256), (2**32 - 1, 1, 0, 0), (1, 1, 0, 0)):
        with pytest.raises(DamagedBlock):
            decode_samples(struct.pack("<4sIHHH", b"GDs1", ticks, gpus, n32, n64) + bomb)
    with pytest.raises(DamagedBlock):
        step_deltas(struct.pack("<4sI", b"GDt1", 2**32 - 1) + bomb)
