from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import TypeAdapter, ValidationError

from schemas.arrays import Floats, Ids, Seeds

ADAPTERS = {"ids": TypeAdapter(Ids), "seeds": TypeAdapter(Seeds), "floats": TypeAdapter(Floats)}
SHAPES = arrays.array_shapes(min_dims=1, max_dims=1, min_side=0, max_side=64)


@pytest.mark.parametrize(
    ("name", "dtype"), [("ids", np.uint32), ("seeds", np.uint64), ("floats", np.float32)]
)
@given(data=st.data())
def test_round_trip(name: str, dtype: type, data: st.DataObject) -> None:
    finite = {"elements": {"allow_nan": False, "allow_infinity": False}} if dtype is np.float32 else {}
    array = data.draw(arrays.arrays(dtype, SHAPES, **finite))
    adapter = ADAPTERS[name]
    sent = adapter.dump_python(adapter.validate_python(array))
    assert sent == array.tobytes()
    received = adapter.validate_python(sent, strict=True)
    assert received.dtype == dtype
    assert received.tobytes() == sent
    assert adapter.validate_json(adapter.dump_json(received)).tobytes() == sent


@given(st.lists(st.integers(0, 2**64 - 1), max_size=64))
def test_lists_of_integers_stay_exact(values: list[int]) -> None:
    assert ADAPTERS["seeds"].validate_python(values).tolist() == values


@given(st.one_of(st.integers(max_value=-1), st.integers(min_value=2**32)))
def test_integers_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(ValidationError, match="integers from 0 to 4294967295"):
        ADAPTERS["ids"].validate_python([0, value])


@pytest.mark.parametrize(
    "value",
    [
        np.array([-1]),
        np.array([2**32]),
        np.array([1.0]),
        [1.0],
        ["1"],
        [True],
        [None],
        np.array([True]),
        [2**100],
    ],
)
def test_ids_are_integers(value: Any) -> None:
    with pytest.raises(ValidationError, match="integers from 0"):
        ADAPTERS["ids"].validate_python(value)


@pytest.mark.parametrize(
    "value", [[float("nan")], [float("inf")], [1e300], np.array([-np.inf]), b"\x00\x00\xc0\x7f"]
)
def test_floats_are_finite(value: Any) -> None:
    with pytest.raises(ValidationError, match="not finite"):
        ADAPTERS["floats"].validate_python(value)


@pytest.mark.parametrize("value", [["1"], [None], [1j], [b"1"]])
def test_floats_are_numbers(value: Any) -> None:
    with pytest.raises(ValidationError, match="numbers are expected"):
        ADAPTERS["floats"].validate_python(value)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize(
    "value", [[[1, 2], [3, 4]], np.zeros((2, 2), dtype=np.uint32), 7, "12", {"a": 1}, None]
)
def test_arrays_have_one_dimension(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match="one dimension"):
        ADAPTERS[name].validate_python(value)


def test_bytes_are_whole_elements() -> None:
    with pytest.raises(ValidationError, match="7 bytes are not a whole number"):
        ADAPTERS["ids"].validate_python(b"1234567")


@pytest.mark.parametrize("value", [bytes(4097 * 8), np.zeros(4097, dtype=np.uint64), [0] * 4097])
def test_arrays_are_bounded(value: Any) -> None:
    with pytest.raises(ValidationError, match="at most 4096"):
        ADAPTERS["seeds"].validate_python(value)


@pytest.mark.parametrize(
    "value", [[1, 2], (1, 2), np.array([1, 2], dtype=np.uint32), "12345678", bytearray(8)]
)
def test_on_the_wire_only_bytes_are_arrays(value: Any) -> None:
    with pytest.raises(ValidationError):
        ADAPTERS["ids"].validate_python(value, strict=True)


@pytest.mark.parametrize("given", [np.array([1, 2], dtype=np.uint32), bytearray(8)])
def test_an_array_is_a_copy_that_nobody_writes_to(given: Any) -> None:
    array = ADAPTERS["ids"].validate_python(given)
    before = array.tolist()
    given[0] = 9
    assert array.tolist() == before
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 9
