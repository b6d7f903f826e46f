"""Members of enums in a kernel: which one it is may be known when it is compiled, or while it runs.

What it models: a member is its place in its class; comparing two compares places, and members of two classes
are never equal. What it leaves out: what a member has besides its value; members of an IntEnum are numbers
(dsl/lowering/values.py). Checked by no ncu metric.
"""

from __future__ import annotations

from enum import Enum

from dsl.lowering import operations
from dsl.lowering.builder import Builder
from dsl.lowering.values import Chosen, Val
from dsl.warpir.ir import Imm


def chosen(member: Enum) -> Chosen:
    """Return the value of a member that is known."""
    owner = type(member)
    return Chosen((Val(Imm(list(owner).index(member)), "s64"),), owner)


def equal(b: Builder, x: Chosen, y: Chosen) -> Val:
    """Emit whether two members are one."""
    (p,), (q,) = x.items, y.items
    assert isinstance(p, Val) and isinstance(q, Val)
    return operations.compare(b, "eq", p, q) if x.owner is y.owner else Val(Imm(False), "pred")


def known(b: Builder, value: Chosen) -> Enum:
    """Return the member; raises UnsupportedFeature where only the running kernel knows it."""
    (place,) = value.items
    if not isinstance(place, Val) or place.constant is None:
        raise b.refuse(
            f"an attribute of a member of {value.owner.__name__} that is chosen while the kernel runs",
            "compare it with the members, and use their values",
        )
    return list(value.owner)[int(place.constant)]
