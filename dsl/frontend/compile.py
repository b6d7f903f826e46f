"""Compile a Python kernel to WarpIR: the entry to the front end.

What it models: kernels that look like numba.cuda's, with numba's types. The walk over the syntax tree is in
dsl/frontend/statements.py, dsl/frontend/expressions.py and dsl/frontend/calls.py; the operations they emit
are in dsl/lowering/operations.py, dsl/lowering/arrays.py, dsl/lowering/mathlib.py and
dsl/intrinsics/surface.py. The body is walked until the types of its variables settle; only the last walk's
code is kept. What it leaves out: anything of Python that needs objects while a kernel runs; it is refused
with its line and what to write instead.
"""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any, cast

from dsl.frontend.calls import bind
from dsl.frontend.statements import run
from dsl.lowering.frame import DYNAMIC_ALIGNMENT_BYTES, Frame, Unit
from dsl.passes.contract import contract
from dsl.passes.divisions import mark_known_divisors
from dsl.passes.joined_sums import keep_joined_sums
from dsl.passes.last_reads import scale_in_every_lane
from dsl.passes.reciprocal import multiply_by_reciprocals
from dsl.passes.sinking import sink_last_sums
from dsl.syntax.source import Source, find
from dsl.types import AnyType, leaf_types
from dsl.warpir import ir
from dsl.warpir.ir import Loc
from gpusim.errors import UnsupportedFeature

MAX_PASSES = 64
"""Types only widen (pred, integers, float32, float64), so passes end; real kernels need two or three."""


def compile_function(
    py_func: Any, arg_types: tuple[AnyType, ...], name: str | None = None, debug: bool = False
) -> ir.Function:
    """Compile a kernel for argument types.

    `py_func` is a Python function or has one as its attribute `py_func`. debug: check divisors.
    Globals and closure variables that are numbers or tuples are constants of the compilation. Raises
    UnsupportedFeature, with file and line, for anything outside the language and for a wrong number of
    arguments.
    """
    func: FunctionType = getattr(py_func, "py_func", py_func)
    source = find(func)
    names = _parameters(source, func, len(arg_types))
    unit = Unit(name or func.__name__, names, debug)
    for _ in range(MAX_PASSES):
        _walk(unit, source, func, arg_types)
        if not unit.changed:
            break
    if unit.waiting:
        raise UnsupportedFeature(unit.waiting[0])
    return _function(unit, source, arg_types)


def _parameters(source: Source, func: FunctionType, given: int) -> tuple[str, ...]:
    spec = source.tree.args
    where = f"{source.file}:{source.tree.lineno}: in {func.__name__}"
    if spec.vararg or spec.kwarg or spec.kwonlyargs:
        raise UnsupportedFeature(
            f"{where}: a kernel with *, ** or keyword-only parameters; name each parameter"
        )
    names = tuple(p.arg for p in (*spec.posonlyargs, *spec.args))
    if len(names) != given:
        raise UnsupportedFeature(
            f"{where}: {given} arguments for {len(names)} parameters ({', '.join(names)}); pass one for each"
        )
    return names


def _walk(unit: Unit, source: Source, func: FunctionType, arg_types: tuple[AnyType, ...]) -> None:
    """Emit the whole kernel with the types known so far; `unit.changed` asks for another walk."""
    unit.begin(Loc(source.file, source.tree.lineno))
    frame = Frame(unit, source, func, ())
    unit.stack.append(func)
    bind(
        frame, func, tuple(frame.parameter(n, a) for n, a in zip(unit.parameters, arg_types, strict=True)), {}
    )
    run(frame, source.tree.body)
    dynamic_offset = -(-unit.shared.at // DYNAMIC_ALIGNMENT_BYTES) * DYNAMIC_ALIGNMENT_BYTES
    if unit.dynamic.arrays and dynamic_offset != unit.dynamic_offset:
        unit.dynamic_offset, unit.changed = dynamic_offset, True
    unit.builder.loc = Loc(source.file, _last_line(source.tree))


def _last_line(tree: ast.FunctionDef) -> int:
    return tree.end_lineno or tree.lineno


def _function(unit: Unit, source: Source, arg_types: tuple[AnyType, ...]) -> ir.Function:
    shared = (*unit.shared.arrays.values(), *unit.dynamic.arrays.values())
    fn = ir.Function(
        name=unit.kernel,
        file=source.file,
        params=tuple(
            ir.Param(name, leaf.type if isinstance(leaf.type, str) else "record", leaf.ndim, leaf.layout)
            for parameter, type_ in zip(unit.parameters, arg_types, strict=True)
            for name, leaf in leaf_types(parameter, type_)
        ),
        blocks=unit.builder.finish(),
        shared=cast("tuple[ir.SharedArray, ...]", shared),
        local=cast("tuple[ir.LocalArray, ...]", tuple(unit.local.arrays.values())),
        n_regs=unit.builder.n_regs,
        multiples=tuple(unit.multiples),
        needs=tuple(unit.needs),
    )
    loaded = {i.array for b in fn.blocks for i in b.instrs if isinstance(i, ir.Ld) and i.space == "const"}
    fn.constants = unit.constants.used(unit.kernel, loaded)
    contract(keep_joined_sums(multiply_by_reciprocals(fn)))
    sink_last_sums(mark_known_divisors(scale_in_every_lane(fn)))
    ir.verify(fn)
    return fn
