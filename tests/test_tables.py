"""Tables: rows, columns and frames all say the same, unknown values included."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor import tables
from tb_gpu_doctor.errors import DoctorError, MissingLibraryError
from tb_gpu_doctor.report.sentences import error_sentence
from tb_gpu_doctor.tables import Table, floats, integers, stacked, words

FRAMES = {"pandas": "to_pandas", "polars": "to_polars", "pyarrow": "to_arrow"}
ROW = st.tuples(
    st.none() | st.sampled_from(["a", "b", "", "<b>"]),
    st.none() | st.integers(-(2**53), 2**53),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.booleans(),
)


def table_of(rows: list[tuple[Any, ...]]) -> Table:
    word, number, real, flag = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = {"word": words(word), "number": integers(number), "size_ms": floats(real), "flag": integers(flag)}
    return Table("things", columns)


@given(st.lists(ROW, max_size=30))
def test_rows_are_what_went_in(rows: list[tuple[Any, ...]]) -> None:
    table = table_of(rows)
    assert len(table) == len(rows) and [tuple(row) for row in table] == rows
    assert table.columns == ("word", "number", "size_ms", "flag")
    assert [row.size_ms for row in table] == [row[2] for row in rows]
    assert table["word"].tolist() == [row[0] for row in rows]
    for name, place in (("number", 1), ("size_ms", 2)):
        values = [None if isinstance(value, float) and math.isnan(value) else value for value in table[name].tolist()]
        assert values == [row[place] for row in rows]
    assert pickle.loads(pickle.dumps(table))["word"].tolist() == table["word"].tolist()


def test_more_rows_than_are_made_at_a_time() -> None:
    table = Table("things", {"place": integers(range(5_000))})
    assert [row.place for row in table] == list(range(5_000))


@pytest.mark.parametrize("library", FRAMES)
@given(rows=st.lists(ROW, max_size=12))
def test_frames_hold_the_same_rows(library: str, rows: list[tuple[Any, ...]]) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    frame = getattr(table_of(rows), FRAMES[library])()
    if library == "pandas":
        rows_ = zip(frame.itertuples(index=False, name=None), frame.isna().to_numpy().tolist(), strict=True)
        found = [tuple(None if no else value for value, no in zip(row, missing, strict=True)) for row, missing in rows_]
        assert list(frame.columns) == ["word", "number", "size_ms", "flag"]
    elif library == "polars":
        found = frame.rows()
    else:
        found = [tuple(row.values()) for row in frame.to_pylist()]
    assert found == rows


@pytest.mark.parametrize("library", FRAMES)
def test_a_library_that_is_missing_is_one_clear_line(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(tables.importlib, "import_module", nothing)
    with pytest.raises(MissingLibraryError) as caught:
        getattr(table_of([]), FRAMES[library])()
    assert str(caught.value) == f"{library} is not installed. Install it with: pip install {library}"
    assert isinstance(caught.value, ImportError) and isinstance(caught.value, DoctorError)
    assert error_sentence(caught.value, "en") == str(caught.value)
    assert f"pip install {library}" in error_sentence(caught.value, "es")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@given(st.lists(st.lists(ROW, max_size=6), max_size=4))
def test_parts_below_one_another(parts: list[list[tuple[Any, ...]]]) -> None:
    names = ("word", "number", "size_ms", "flag")
    made = [{name: table_of(rows).data[name] for name in names} for rows in parts]
    joined = stacked("things", made, {name: table_of([]).data[name] for name in names})
    assert [tuple(row) for row in joined] == [row for rows in parts for row in rows]


def test_what_a_notebook_shows_is_escaped_and_short() -> None:
    table = table_of([("<script>alert(1)</script>" + "x" * 100, 1, 0.123456789, None)] * 50)
    page = table._repr_html_()
    assert "<script" not in page and "&lt;script&gt;" in page and "x" * 80 not in page
    assert page.count("<tr>") == 11 and "0.123457" in page and "50 rows" in page
    assert repr(table) == "<things: 50 rows, 4 columns>"


def test_columns_have_one_length_and_numpy_beneath() -> None:
    with pytest.raises(ValueError, match="several lengths"):
        Table("things", {"a": integers([1]), "b": integers([1, 2])})
    table = table_of([("a", 1, 1.0, True)] * 3)
    assert table["number"].dtype == np.int64 and table["size_ms"].dtype == np.float64 and table["flag"].dtype == bool
    with pytest.raises(KeyError):
        _ = table["nothing"]
