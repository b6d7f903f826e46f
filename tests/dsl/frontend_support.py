"""Compile a kernel and run it by both oracles: WarpIR in the numpy interpreter, the Python source one thread
at a time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from dsl.frontend.compile import compile_function
from dsl.interpreter.run import run
from dsl.oracle import run as oracle
from dsl.types import ArgType, arg_type
from dsl.warpir import ir
from gpusim.memory import GlobalMemory


def compiled(kernel: Any, *args: Any) -> ir.Function:
    """Compile a kernel for arguments, or for ArgTypes; the result obeys ir.verify."""
    fn = compile_function(kernel, tuple(a if isinstance(a, ArgType) else arg_type(a) for a in args))
    ir.verify(fn)
    return fn


def interpret(kernel: Any, grid: Any, block: Any, *args: Any, shared_bytes: int = 0) -> list[Any]:
    """Run a kernel's WarpIR on copies of the arguments and return the copies."""
    fn = compiled(kernel, *args)
    memory, params, out = GlobalMemory(1 << 24), {}, []
    for p, a in zip(fn.params, args, strict=True):
        if p.ndim is None:
            params[p.name] = a
            out.append(a)
            continue
        base = memory.alloc(max(a.nbytes, 1))
        view = memory.view(base, a.shape, a.dtype, a.strides)
        view[...] = a
        params[f"{p.name}.base"] = base
        params |= {f"{p.name}.shape.{k}": n for k, n in enumerate(a.shape)}
        params |= {f"{p.name}.stride.{k}": n for k, n in enumerate(a.strides)}
        out.append(view)
    for array in fn.shared:
        if array.bytes == 0:
            params[f"{array.name}.shape.0"] = shared_bytes // ir.BYTES[array.type]
    run(fn, grid, block, params, memory, shared_bytes)
    return [np.array(x) if isinstance(x, np.ndarray) else x for x in out]


def agree(
    kernel: Any, grid: Any, block: Any, *args: Any, shared_bytes: int = 0, rtol: float = 1e-6
) -> list[Any]:
    """Run a kernel both ways, assert that every array is the same, and return the arrays."""
    got = interpret(kernel, grid, block, *args, shared_bytes=shared_bytes)
    expected = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with np.errstate(all="ignore"):
        oracle.run(kernel, grid, block, expected, shared_bytes=shared_bytes)
    for x, y in zip(got, expected, strict=True):
        if isinstance(x, np.ndarray):
            np.testing.assert_allclose(x, y, rtol=rtol, atol=0)
    return got


def ops(fn: ir.Function) -> Counter[str]:
    """Count the Alu operations of a function by "op.type", and other instructions by their class name."""
    return Counter(
        f"{i.op}.{i.type}" if isinstance(i, ir.Alu) else type(i).__name__ for b in fn.blocks for i in b.instrs
    )
