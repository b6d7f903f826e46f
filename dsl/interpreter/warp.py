"""One warp of the interpreter: its registers, its masks, its arithmetic; no memory and no barriers.

What it models: 32 lanes that run the basic blocks of WarpIR under masks, lowest pending block first, which
is reconvergence at the immediate post-dominator. What it leaves out: memory (dsl/interpreter/run.py) and
counts. Which ncu metric checks it: none directly; executed lanes become
`smsp__sass_thread_inst_executed_op_*`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsl.semantics import lane_ops
from dsl.semantics.floats import Array
from dsl.semantics.messages import LANES, Dim3
from dsl.types import register_type
from dsl.warpir import ir
from gpusim.trace import Kind, pack


def _poison(type_: str) -> Array:
    """Return what a register holds before its first write: NaN or -1, so that it shows; predicates false."""
    if type_ == "pred":
        return np.zeros(LANES, bool)
    dtype = lane_ops.DTYPES[type_]
    return np.full(LANES * dtype.itemsize, 0xFF, np.uint8).view(dtype)


def register_types(fn: ir.Function) -> dict[int, str]:
    """Map the index of each register of a function to its type."""
    found: dict[int, str] = {}
    for block in fn.blocks:
        for instr in (*block.instrs, block.terminator):
            for operand in (*ir.sources(instr), *ir.destinations(instr)):
                if isinstance(operand, ir.Reg):
                    found[operand.index] = operand.type
    return found


@dataclass
class Warp:
    """Hold one warp: `pending` maps an IR block to the lanes that wait to run it."""

    number: int
    tids: dict[str, Array]
    pending: dict[int, Array]
    registers: dict[int, Array]
    frame: Array
    """Local memory: uint8, shape (32, bytes a thread)."""
    step_parts: int = 0
    """Passes through headers of loops, in parts of a step (ir.STEP_PARTS)."""
    past_end: int = 0
    """Lanes that have got to the end of the kernel's body, not out of it by a return before."""
    marked: bool = False
    """Whether the trace has this warp's mark in the present region."""
    constants: dict[tuple[int, str], Array] = field(default_factory=dict)

    def read(self, operand: ir.Operand, type_: str) -> Array:
        """Return an operand's 32 values as a type of its width."""
        if isinstance(operand, ir.Reg):
            return lane_ops.reinterpret(self.registers[operand.index], type_)
        key = (id(operand), type_)
        if key not in self.constants:
            self.constants[key] = np.full(LANES, lane_ops.constant(operand.value, type_))
        return self.constants[key]

    def write(self, dst: ir.Reg, values: Array, mask: Array) -> None:
        """Write a register in the lanes of a mask."""
        np.copyto(self.registers[dst.index], lane_ops.reinterpret(values, dst.type), where=mask)

    def take_lowest(self) -> tuple[int, Array]:
        """Remove the lowest pending block and return it with its mask."""
        index = min(self.pending)
        return index, self.pending.pop(index)

    def send(self, target: int, mask: Array) -> None:
        """Let the lanes of a mask wait for a block."""
        if mask.any():
            self.pending[target] = self.pending[target] | mask if target in self.pending else mask

    def trace(self, records: list[int], into: list[int]) -> None:
        """Append a request's records to a trace, after the warp's mark if they are its first there."""
        if not self.marked:
            into.append(pack(self.number, 0, Kind.WARP, first=False))
            self.marked = True
        into.extend(records)

    def live(self, running: Array) -> Array:
        """Return the lanes that have not returned: those that run, and those that wait for other blocks."""
        return np.logical_or.reduce([running, *self.pending.values()])

    def elsewhere(self) -> int:
        """Return how many live lanes wait for other blocks than the one running."""
        return sum(int(mask.sum()) for mask in self.pending.values())


def _thread_indices(linear: Array, block: Dim3) -> dict[str, Array]:
    """Return threadIdx, the lane and the mask of the lanes below it, of threads by their linear numbers."""
    x, y, lane = linear % block[0], linear // block[0] % block[1], linear % LANES
    below = (1 << lane) - 1
    return {
        "tid.x": x,
        "tid.y": y,
        "tid.z": linear // (block[0] * block[1]),
        "laneid": lane,
        "lanemask_lt": below,
    }


def make_warps(fn: ir.Function, block: Dim3) -> Iterator[Warp]:
    """Yield the warps of one block of threads, all lanes at the entry; the last may have fewer than 32."""
    threads = block[0] * block[1] * block[2]
    types = register_types(fn)
    for number in range(-(-threads // LANES)):
        linear = np.arange(number * LANES, (number + 1) * LANES)
        frame = np.full((LANES, -(-fn.local_bytes // 4) * 4), 0xFF, np.uint8)
        registers = {i: _poison(t) for i, t in types.items()}
        yield Warp(number, _thread_indices(linear, block), {0: linear < threads}, registers, frame)


def _alu(warp: Warp, instr: ir.Alu, mask: Array) -> None:
    first = [warp.read(instr.srcs[0], instr.type)]
    rest = [
        _shift_amount(warp, s, instr.type) if instr.op in ("shl", "shr") else warp.read(s, instr.type)
        for s in instr.srcs[1:]
    ]
    result = lane_ops.operation(instr.op, instr.type)(*first, *rest)
    warp.write(instr.dst, np.asarray(result).astype(lane_ops.DTYPES[instr.type], copy=False), mask)


def _shift_amount(warp: Warp, operand: ir.Operand, type_: str) -> Array:
    """Read a shift amount, which may be narrower or wider than what is shifted."""
    return warp.read(operand, operand.type if isinstance(operand, ir.Reg) else type_)


def _cvt(warp: Warp, instr: ir.Cvt, mask: Array) -> None:
    source = (
        warp.read(instr.src, instr.from_type)
        if instr.from_type in ir.REGISTER_TYPES
        else _narrow_source(warp, instr)
    )
    found = lane_ops.convert(source, instr.to_type, instr.from_type, instr.saturate, instr.rounding)
    warp.write(instr.dst, widen(found, instr.dst.type), mask)


def _narrow_source(warp: Warp, instr: ir.Cvt) -> Array:
    """Read a source of an 8- or 16-bit type from the 32-bit register that holds it."""
    return warp.read(instr.src, instr.src.type if isinstance(instr.src, ir.Reg) else instr.from_type)


def widen(values: Array, type_: str) -> Array:
    """Return 8- and 16-bit values as the 32-bit register type that holds them; leave others alone."""
    dtype = lane_ops.DTYPES[type_]
    return values.astype(dtype) if values.dtype.itemsize < dtype.itemsize else values


def _bitcast(warp: Warp, instr: ir.Bitcast, mask: Array) -> None:
    source = warp.read(instr.src, register_type(instr.from_type))
    low_bits = source.astype(lane_ops.DTYPES[instr.from_type], copy=False)
    warp.write(instr.dst, widen(lane_ops.reinterpret(low_bits, instr.to_type), instr.dst.type), mask)


def _setp(warp: Warp, instr: ir.Setp, mask: Array) -> None:
    a, b = warp.read(instr.a, instr.type), warp.read(instr.b, instr.type)
    warp.write(instr.dst, lane_ops.COMPARISONS[instr.op](a, b), mask)


def _selp(warp: Warp, instr: ir.Selp, mask: Array) -> None:
    a, b = warp.read(instr.a, instr.type), warp.read(instr.b, instr.type)
    warp.write(instr.dst, np.where(warp.read(instr.cond, "pred"), a, b), mask)


COMPUTE: dict[type, Callable[[Warp, Any, Array], None]] = {
    ir.Alu: _alu,
    ir.Cvt: _cvt,
    ir.Bitcast: _bitcast,
    ir.Setp: _setp,
    ir.Selp: _selp,
}
"""How to run each instruction that reads and writes registers only: f(warp, instr, mask)."""


def special_registers(warp: Warp, ctaid: Dim3, grid: Dim3, block: Dim3) -> Mapping[str, Array | int]:
    """Return the special registers of a warp by name."""
    axes = "xyz"
    uniform = {
        f"{name}.{a}": size[i]
        for name, size in (("ctaid", ctaid), ("nctaid", grid), ("ntid", block))
        for i, a in enumerate(axes)
    }
    return {**uniform, **warp.tids}
