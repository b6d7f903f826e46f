"""Move the data of one access of a warp between registers and the bytes of a space, for the interpreter.

What it models: narrow elements in 32-bit registers, colliding stores (the highest lane's stays) and atomics
in the order of lanes. What it leaves out: addresses, bounds and counts (dsl/interpreter/run.py). Checked by
no ncu metric.

`storage` is the space as bytes; `where`, of shape (active lanes, bytes a lane), says where the elements
of each lane lie.
"""

from __future__ import annotations

import numpy as np

from dsl.interpreter.warp import Warp, widen
from dsl.semantics import lane_ops
from dsl.semantics.floats import Array
from dsl.semantics.messages import LANES
from dsl.warpir import ir


def load(warp: Warp, instr: ir.Ld, storage: Array, where: Array, mask: Array) -> None:
    """Read the elements of each lane, each widened to its register."""
    raw = storage[where]
    found = raw != 0 if instr.type == "pred" else raw.view(lane_ops.DTYPES[instr.type])
    for k, dst in enumerate(instr.dsts):
        values = np.zeros(LANES, lane_ops.DTYPES[instr.type])
        values[mask] = found[:, k]
        warp.write(dst, widen(values, dst.type), mask)


def _values(warp: Warp, operand: ir.Operand, type_: str) -> Array:
    """Return what a store or an atomic writes, in the element's type: a wider register's low bits."""
    dtype = lane_ops.DTYPES[type_]
    values = warp.read(operand, operand.type if isinstance(operand, ir.Reg) else type_)
    return (
        lane_ops.reinterpret(values, type_)
        if values.dtype.itemsize == dtype.itemsize
        else values.astype(dtype)
    )


def store(warp: Warp, instr: ir.St, storage: Array, where: Array, mask: Array) -> None:
    """Write lane after lane, so that the highest lane's value stays."""
    values = np.stack([_values(warp, v, instr.type)[mask] for v in instr.values], axis=1)
    for place, elements in zip(where, values, strict=True):
        storage[place] = np.frombuffer(elements.tobytes(), np.uint8)


def atomic(warp: Warp, instr: ir.Atom, storage: Array, where: Array, mask: Array) -> None:
    """Update lane after lane, in ascending order."""
    dtype = lane_ops.DTYPES[instr.type]
    old = np.zeros(LANES, dtype)
    values = _values(warp, instr.value, instr.type)
    compare = values if instr.compare is None else _values(warp, instr.compare, instr.type)
    for lane, place in zip(np.flatnonzero(mask), where, strict=True):
        old[lane] = storage[place].view(dtype)[0]
        new = lane_ops.atomic(instr.op, old[lane], values[lane], compare[lane])
        storage[place] = np.frombuffer(dtype.type(new).tobytes(), np.uint8)
    if instr.dst is not None:
        warp.write(instr.dst, old, mask)
