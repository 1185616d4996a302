"""The formats of the iteration problem: instances and selections; docs/iteration.md describes them."""

from __future__ import annotations

import os
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.files.fields import INSTANCE_SCHEMA, SCHEDULE_SCHEMA, Fields, shown
from infermax_opt.files.json import under
from infermax_opt.files.writing import dump_json
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.cost_format import cost_from_json, cost_to_json
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.iteration.data.instance import BEST_EFFORT, IterationGroup, IterationInstance, Machine
from infermax_opt.iteration.data.selection import Selection

__all__ = [
    "ITERATION", "iteration_instance_from_json", "iteration_instance_to_json", "machine_cost_to_json",
    "selection_from_json", "selection_to_json", "write_iteration_instance",
]  # fmt: skip

#: What instances name as their problem.
ITERATION = "iteration"
#: Attention of the cost of such instances besides those of `Attention`.
PRODUCT = "product"
_REQUEST = ("input", "waited", "new_blocks", "host_blocks", "weight", "value", "group", "count")
_MACHINE = ("batch", "blocks", "t_avg", "ttft", "tpot", "cost")


def iteration_instance_from_json(value: object) -> IterationInstance:
    """Build an instance from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    top = Fields(value, "", ["schema", "problem", "name", "requests", "machine", "objective"])
    top.schema(INSTANCE_SCHEMA)
    if top.get("problem") != ITERATION:
        raise InputError(f"{shown(top.get('problem'))} is not {ITERATION!r}", field="problem")
    groups = [_group(item, f"requests[{k}]") for k, item in enumerate(top.items("requests"))]
    return IterationInstance(
        top.text("name"), tuple(groups), _machine(top.get("machine")), top.text("objective")
    )


def _group(item: object, path: str) -> IterationGroup:
    fields = Fields(item, path, ["id", "class", "phase", "context"], _REQUEST)
    for key in fields.values:
        if fields.get(key) is None:
            raise InputError("null is not a value; leave the key out", field=fields.at(key))
    given = dict(fields.values)
    kind = given.pop("class")
    own, other = ("value", "weight") if kind == BEST_EFFORT else ("weight", "value")
    if other in given:
        raise InputError(f"requests of the class {shown(kind)} have a {own}", field=fields.at(other))
    with under(path):
        return IterationGroup(kind=kind, value=given.pop(own, None), **given)


def _machine(value: object) -> Machine:
    fields = Fields(value, "machine", _MACHINE, ["group", "swap"])
    cost, product = _cost(fields.get("cost"))
    return Machine(
        batch=fields.get("batch"),
        blocks=fields.get("blocks"),
        t_avg=fields.decimal("t_avg"),
        ttft=fields.decimal("ttft"),
        tpot=fields.decimal("tpot"),
        cost=cost,
        group=fields.get("group"),
        swap=fields.get("swap"),
        product=product,
    )


def _cost(value: object) -> tuple[CostModel, bool]:
    """The cost model, and whether its attention work is the product of totals."""
    with under("machine"):
        if isinstance(value, dict) and "profile" in value:
            return load_profile(Fields(value, "cost", ["profile"]).text("profile")).cost, False
        product = isinstance(value, dict) and value.get("attention") == PRODUCT
        known = [*(kind.value for kind in Attention), PRODUCT]
        if isinstance(value, dict) and value.get("attention", PRODUCT) not in known:
            text = f"{shown(value['attention'])} is none of {', '.join(map(repr, known))}"
            raise InputError(text, field="cost.attention")
        if product:
            value = {**value, "attention": Attention.EXACT.value}  # type: ignore[dict-item]
        return cost_from_json(value), product


def machine_cost_to_json(machine: Machine) -> dict[str, Any]:
    """Return the JSON value of the cost, coefficients spelled out."""
    cost = cost_to_json(machine.cost)
    return {**cost, "attention": PRODUCT} if machine.product else cost


def iteration_instance_to_json(instance: IterationInstance) -> dict[str, Any]:
    """Return the JSON value that `iteration_instance_from_json` reads."""
    machine = instance.machine

    def text(value: Fraction) -> str:
        return decimal_text(Fraction(value))

    def group(g: IterationGroup) -> dict[str, Any]:
        assert g.value is not None
        entry: dict[str, Any] = {"id": g.id, "class": g.kind, "phase": g.phase, "context": g.context}
        best_effort = g.kind == BEST_EFFORT
        optional = {
            "input": (g.input, 1 if g.phase == "decode" else g.context),
            "waited": (g.waited, 0),
            "new_blocks": (g.new_blocks, 0),
            "host_blocks": (g.host_blocks, 0),
            "value" if best_effort else "weight": (g.value, 1 if best_effort else 0),
            "group": (g.group, 1),
            "count": (g.count, None),
        }
        for key, (given, default) in optional.items():
            if given != default:
                entry[key] = text(given) if isinstance(given, Fraction) else given
        return entry

    return {
        "schema": INSTANCE_SCHEMA,
        "problem": ITERATION,
        "name": instance.name,
        "requests": [group(g) for g in instance.groups],
        "machine": {
            "batch": machine.batch,
            "blocks": machine.blocks,
            **{key: text(getattr(machine, key)) for key in ("t_avg", "ttft", "tpot")},
            **({} if machine.group is None else {"group": machine.group}),
            "cost": machine_cost_to_json(machine),
            **({} if machine.swap is None else {"swap": [text(part) for part in machine.swap]}),
        },
        "objective": instance.objective,
    }


def selection_from_json(value: object, path: str = "") -> Selection:
    """Build a selection from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.  Whether the selection is valid is the verifier's question.
    """
    top = Fields(value, path, ["schema", "instance", "select"])
    top.schema(SCHEDULE_SCHEMA)
    with under(path) if path else nullcontext():
        return Selection(top.text("instance"), tuple(top.items("select")))


def selection_to_json(selection: Selection) -> dict[str, Any]:
    """Return the JSON value that `selection_from_json` reads."""
    return {"schema": SCHEDULE_SCHEMA, "instance": selection.instance, "select": list(selection.select)}


def write_iteration_instance(instance: IterationInstance, path: str | os.PathLike[str]) -> None:
    """Write an instance file."""
    dump_json(iteration_instance_to_json(instance), path)
