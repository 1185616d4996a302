"""The cost model of an instance or a profile as JSON, coefficients spelled out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.core.exact import decimal_text
from infermax_opt.files.fields import Fields
from infermax_opt.infermax.data.cost import CostModel

__all__ = ["cost_from_json", "cost_to_json"]


def cost_from_json(value: object) -> CostModel:
    """Build a cost model from parsed JSON, its coefficients spelled out.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    fields = Fields(value, "cost", ["batch", "decode", "prefill", "attention"], ["mixed", "prefix"])
    return CostModel(
        batch=fields.items("batch"),
        decode=fields.get("decode"),
        prefill=fields.get("prefill"),
        attention=fields.get("attention"),
        mixed=fields.get("mixed", (0, 0)),
        prefix=fields.get("prefix", 0),
    )


def cost_to_json(cost: CostModel) -> dict[str, Any]:
    """Return the JSON value of a cost model, coefficients spelled out."""
    return {
        "batch": [[decimal_text(Fraction(v)) for v in pair] for pair in cost.batch],
        "decode": [decimal_text(Fraction(v)) for v in cost.decode],
        "prefill": [decimal_text(Fraction(v)) for v in cost.prefill],
        "attention": cost.attention.value,
        **({"mixed": [decimal_text(Fraction(v)) for v in cost.mixed]} if any(cost.mixed) else {}),
        **({"prefix": decimal_text(Fraction(cost.prefix))} if cost.prefix else {}),
    }
