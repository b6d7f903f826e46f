"""Build WarpIR by hand and run it in the interpreter, for tests with values that a reader can derive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dsl.interpreter.run import IrRun, run
from dsl.warpir import ir
from gpusim import trace
from gpusim.memory import GlobalMemory
from gpusim.trace import Kind

Imm, Reg = ir.Imm, ir.Reg


class Builder:
    """Build a function block by block; every register gets a fresh index and every instruction its own
    line."""

    def __init__(self, **fields: Any) -> None:
        self.blocks: list[ir.Block] = []
        self.fields = fields
        self.n = 0

    def loc(self) -> ir.Loc:
        return ir.Loc("k.py", sum(len(b.instrs) + 1 for b in self.blocks))

    def reg(self, type_: str) -> Reg:
        self.n += 1
        return Reg(self.n - 1, type_)

    def block(self, may_spin: bool = False) -> int:
        self.blocks.append(ir.Block(may_spin=may_spin))
        return len(self.blocks) - 1

    def add(self, make: Callable[..., ir.Instr], *args: Any) -> None:
        self.blocks[-1].instrs.append(make(*args, self.loc()))

    def end(self, make: Callable[..., ir.Terminator], *args: Any) -> None:
        self.blocks[-1].terminator = make(*args, self.loc())

    def alu(self, op: str, type_: str, *srcs: ir.Operand, dst: Reg | None = None) -> Reg:
        dst = dst or self.reg(type_)
        self.add(lambda loc: ir.Alu(op, type_, dst, srcs, loc))
        return dst

    def setp(self, op: str, type_: str, a: ir.Operand, b: ir.Operand) -> Reg:
        dst = self.reg("pred")
        self.add(ir.Setp, op, type_, dst, a, b)
        return dst

    def sreg(self, name: str) -> Reg:
        dst = self.reg("s32")
        self.add(ir.Sreg, dst, name)
        return dst

    def wide(self, value: ir.Operand) -> Reg:
        dst = self.reg("s64")
        self.add(ir.Cvt, dst, "s64", value, "s32")
        return dst

    def param(self, name: str, type_: str = "s64") -> Reg:
        dst = self.reg(type_)
        self.add(ir.LdParam, dst, name)
        return dst

    def check(self, index: ir.Operand, extent: ir.Operand, array: str) -> Reg:
        dst = self.reg("s64")
        self.add(ir.Chk, dst, index, extent, array, 0)
        return dst

    def at(self, array: str, index: ir.Operand, size: int = 4) -> Reg:
        """Return base + size * index for a global array."""
        return self.alu(
            "add", "s64", self.param(array + ".base", "u64"), self.alu("mul", "s64", index, Imm(size))
        )

    def load(self, space: str, type_: str, addr: ir.Operand, array: str = "a") -> Reg:
        dst = self.reg(type_)
        self.add(ir.Ld, space, type_, (dst,), addr, array)
        return dst

    def store(self, space: str, type_: str, value: ir.Operand, addr: ir.Operand, array: str = "a") -> None:
        self.add(ir.St, space, type_, (value,), addr, array)

    def done(self) -> ir.Function:
        return ir.Function("kernel", "k.py", (), self.blocks, n_regs=self.n, **self.fields)


class Device:
    """Hold arrays in a memory, and run a function on them."""

    def __init__(self, **arrays: np.ndarray) -> None:
        self.memory = GlobalMemory(1 << 24)
        self.params: dict[str, Any] = {}
        self.arrays: dict[str, np.ndarray] = {}
        for name, a in arrays.items():
            address = self.memory.alloc(a.nbytes)
            self.arrays[name] = self.memory.view(address, a.shape, a.dtype)
            self.arrays[name][...] = a
            self.params |= {f"{name}.base": address, f"{name}.shape.0": a.shape[0]}

    def run(self, fn: ir.Function, grid: Any, block: Any, **options: Any) -> IrRun:
        return run(fn, grid, block, self.params, self.memory, **options)


def kinds(records: np.ndarray) -> list[str]:
    return [Kind(k).name for k in trace.unpack(records)["kind"]]
