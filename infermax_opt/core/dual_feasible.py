r"""Dual-feasible functions: one row of sizes into another that must hold, too.

A row says that sizes which are somewhere together add up to a capacity C at most.  Let f map 0..C to whole
numbers of 0 or more, with f(x) + f(y) <= f(x + y); so f(x) <= f(x + 1), too.  Then what fits has
sum of f(x_i) <= f(sum of x_i) <= f(C): the values are a row of capacity f(C).  Where there is room for R <= C
only, it is f(R).

Three families (survey: Clautiaux, Alves and Valério de Carvalho 2010):

- `cut` t (Martello and Toth): 0 below t, C above C - t, else x; 1 <= t <= C/2.
- `steps` t (Carlier, Clautiaux and Moukrim): with n(x) = floor(x / t), 2 n(x) below C/2, n(C) at C/2,
  2 (n(C) - n(C - x)) above.
- `parts` k (Fekete and Schepers): with m = (k + 1) x / C, k x if m is whole, else C floor(m); k C at C.

*Proof for cut.*  If y > C - t, then x <= C - y < t: f(x) + f(y) = 0 + C = f(x + y).  If neither is above
C - t, both keep their size or become 0.  If both become 0, there is nothing to prove; if one does not,
x + y >= t, and f(x + y) is x + y or C.

*Symmetry.*  `steps` and `parts` have f(x) + f(C - x) = f(C).  So with z = C - x - y it has to be shown that
f(x) + f(y) + f(z) <= f(C) for any three sizes with the sum C.

*Proof for steps.*  n(x) + n(y) <= n(x + y), and f(C) = 2 n(C).  With none of C/2 or more, the sum of f is
2 n(x) + 2 n(y) + 2 n(z) <= 2 n(C).  With z > C/2 it is 2 n(x) + 2 n(y) + 2 n(C) - 2 n(x + y).  With z = C/2
alone it is 2 n(x) + 2 n(y) + n(C) <= 2 n(C/2) + n(C) <= 2 n(C); with two of C/2 it is 2 n(C).

*Proof for parts.*  The three m add up to k + 1.  If all are whole, the sum of f is k C.  If not, their
fractions add up to 1 or more, so the floors add up to k at most; and where m is whole, k x = C m - x <= C m.
"""

from __future__ import annotations

from typing import Any

__all__ = ["cut", "parts", "steps"]


def cut(x: Any, capacity: int, t: Any) -> Any:
    """Martello and Toth (module docstring).

    Parameters
    ----------
    x : int or array of int
        Sizes.
    capacity : int
    t : int or array of int
        Threshold.
    """
    import numpy as np

    return np.where(x > capacity - t, capacity, np.where(x >= t, x, 0))


def steps(x: Any, capacity: int, t: Any) -> Any:
    """Carlier, Clautiaux and Moukrim (module docstring).

    Parameters
    ----------
    x : int or array of int
        Sizes.
    capacity : int
    t : int or array of int
        Height of a step.
    """
    import numpy as np

    most = capacity // t
    above, below = 2 * (most - (capacity - x) // t), 2 * (x // t)
    return np.where(2 * x > capacity, above, np.where(2 * x == capacity, most, below))


def parts(x: Any, capacity: int, k: Any) -> Any:
    """Fekete and Schepers (module docstring).

    Parameters
    ----------
    x : int or array of int
        Sizes.
    capacity : int
    k : int or array of int
        Value of the capacity, in capacities.
    """
    import numpy as np

    multiple = x * (k + 1)
    return np.where(multiple % capacity == 0, x * k, multiple // capacity * capacity)
