"""Lower bounds on the objective, each with its proof.

All arithmetic is exact: integers in ticks of the cost model.  A bound holds for every schedule
that the instance's policy allows.
"""

from __future__ import annotations

from infermax_opt.infermax.bounds.closed_form import closed_form_bounds

__all__ = ["closed_form_bounds"]
