"""Polynomials over GF(65497), many at once: interpolation through points and evaluation.

65497 is the prime of TOPLOC: the bits of every finite bfloat16 are below it, and the product of two field
elements plus a third fits an unsigned 32-bit word. Arrays are uint32 [points or coefficients, C]: the last
axis runs over independent polynomials, so that each step of the algorithms is one contiguous vector operation.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

PRIME = 65497
Elements = NDArray[np.uint32]


def reduced(values: Elements) -> Elements:
    """values mod PRIME. NumPy divides by a scalar with vector instructions, but takes remainders one by one."""
    return values - values // np.uint32(PRIME) * np.uint32(PRIME)


def difference(left: Elements, right: Elements) -> Elements:
    """left - right in the field: where the unsigned subtraction wraps, adding the prime wraps it back."""
    wrapped: Elements = left - right
    return np.minimum(wrapped, wrapped + np.uint32(PRIME))


@functools.cache
def inverses() -> Elements:
    """Multiplicative inverses, uint32 [PRIME]; entry 0 is 0. From i^-1 = -(p // i) (p mod i)^-1."""
    table = [0, 1]
    for i in range(2, PRIME):
        table.append(PRIME - PRIME // i * table[PRIME % i] % PRIME)
    return np.array(table, dtype=np.uint32)


def interpolate(x: Elements, y: Elements) -> Elements:
    """The coefficients, lowest first, of the polynomials of degree < k through k points each.

    x, y: field elements [k, C]; the x of one column are distinct. Returns [k, C]. Newton's divided
    differences, then Horner's scheme from Newton's basis to monomials: O(k^2) operations.
    """
    inverse, newton, k = inverses(), y.copy(), len(x)
    for step in range(1, k):
        rise = difference(newton[step:], newton[step - 1 : -1])
        newton[step:] = reduced(rise * inverse.take(difference(x[step:], x[:-step])))
    coefficients = np.zeros_like(y)
    coefficients[0] = newton[-1]
    minus_x = np.uint32(PRIME) - x
    for i in range(k - 2, -1, -1):
        degree = k - 1 - i
        product = coefficients[:degree] * minus_x[i]
        product[1:] += coefficients[: degree - 1]
        product[0] += newton[i]
        coefficients[degree] = coefficients[degree - 1]
        coefficients[:degree] = reduced(product)
    return coefficients


def evaluate(coefficients: Elements, x: Elements) -> Elements:
    """Values at x [P, C] of the polynomials with coefficients [k, C], lowest first (Horner). Returns [P, C]."""
    values = np.zeros_like(x)
    for coefficient in coefficients[::-1]:
        values = reduced(values * x + coefficient)
    return values
