import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policy.galois import PRIME, difference, evaluate, interpolate, inverses, reduced

elements = st.integers(0, PRIME - 1)
points = st.lists(st.tuples(elements, elements), min_size=1, max_size=20, unique_by=lambda point: point[0])


def test_inverses() -> None:
    numbers = np.arange(1, PRIME, dtype=np.uint64)
    assert (numbers * inverses()[1:] % PRIME == 1).all()


@given(st.integers(0, 2**32 - 1), elements, elements)
def test_arithmetic_equals_that_of_whole_numbers(value: int, left: int, right: int) -> None:
    one = [np.array([number], dtype=np.uint32) for number in (value, left, right)]
    assert reduced(one[0]) == value % PRIME
    assert difference(one[1], one[2]) == (left - right) % PRIME


@given(points)
def test_the_polynomial_goes_through_its_points(found: list[tuple[int, int]]) -> None:
    x, y = np.array(found, dtype=np.uint32).reshape(-1, 2, 1).transpose(1, 0, 2)
    assert np.array_equal(evaluate(interpolate(x, y), x), y)


@given(st.lists(elements, min_size=1, max_size=20), st.data())
def test_coefficients_come_back(coefficients: list[int], data: st.DataObject) -> None:
    x = data.draw(st.lists(elements, min_size=len(coefficients), max_size=len(coefficients), unique=True))
    values = [sum(c * pow(at, power, PRIME) for power, c in enumerate(coefficients)) % PRIME for at in x]
    columns = (np.array([column], dtype=np.uint32).T for column in (x, values))
    assert interpolate(*columns).T.tolist() == [coefficients]


def test_columns_are_independent_polynomials() -> None:
    random = np.random.default_rng(0)
    x = np.stack([random.permutation(PRIME)[:128] for _ in range(5)], axis=1).astype(np.uint32)
    y = random.integers(0, PRIME, x.shape).astype(np.uint32)
    together = interpolate(x, y)
    for column in range(5):
        assert np.array_equal(together[:, [column]], interpolate(x[:, [column]], y[:, [column]]))
    assert np.array_equal(evaluate(together, x), y)
