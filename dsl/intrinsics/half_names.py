"""The device functions of `cuda.fp16`, `cuda.bf16` and `cuda.fp8`: arithmetic, comparisons, conversions.

What it models: numba.cuda's bindings of CUDA's headers; arguments of other types become the 16-bit float
first. What it leaves out is refused by name: packed pairs. Which ncu metric checks it:
`smsp__sass_thread_inst_executed_op_{hadd,hmul,hfma}_pred_on` (exact).
"""

from __future__ import annotations

from collections.abc import Callable

from dsl.intrinsics.arguments import Emitter, number, takes
from dsl.lowering import half, operations
from dsl.lowering.builder import Builder
from dsl.lowering.frame import Frame
from dsl.lowering.values import Val, Value

NAMESPACES = {"fp16": "f16", "bf16": "bf16"}
Emit = Callable[..., Val]


def _compare(op: str) -> Emit:
    return lambda b, x, y: Val(b.setp(op, x.type, x.operand, y.operand), "pred")


def _ordered_ne(b: Builder, x: Val, y: Val) -> Val:
    """Emit whether two numbers differ; a NaN makes it false (CUDA's __hne), as it does not with `!=`."""
    below, above = (b.setp(op, x.type, x.operand, y.operand) for op in ("lt", "gt"))
    return Val(b.alu("or", "pred", below, above), "pred")


def _unless(compare: Emit) -> Emit:
    """Return the emitter of a comparison's contrary, which a NaN makes true."""
    return lambda b, x, y: operations.negate(b, compare(b, x, y))


def _arithmetic(op: str, exact: bool = False) -> Emit:
    return lambda b, *args: half.arithmetic(b, op, args, exact)


def _saturating(op: str) -> Emit:
    return lambda b, *args: half.clamped(b, half.arithmetic(b, op, args))


def _function(name: str) -> Emit:
    return lambda b, x: half.function(b, name, x)


def _negated(b: Builder, x: Val) -> Val:
    return operations.unary(b, "neg", x)


def _divided(b: Builder, x: Val, y: Val) -> Val:
    return operations.binary(b, "div", x, y)


def _is_nan(b: Builder, x: Val) -> Val:
    return Val(b.setp("ne", x.type, x.operand, x.operand), "pred")


_PAIR, _THREE = ("a", "b"), ("a", "b", "c")
_ALIKE: dict[str, tuple[tuple[str, ...], Emit]] = {
    **{f"h{op}": (_PAIR, _arithmetic(op)) for op in ("add", "sub", "mul", "max", "min")},
    "hdiv": (_PAIR, _divided),
    "hfma": (_THREE, _arithmetic("fma")),
    "hneg": (("a",), _negated),
    "habs": (("a",), _function("fabs")),
    **{f"h{op}": (_PAIR, _compare(op)) for op in ("eq", "gt", "ge", "lt", "le")},
    "hne": (_PAIR, _ordered_ne),
    **{f"h{name}": (("a",), _function(name)) for name in half.FUNCTIONS if name != "fabs"},
}
"""Functions of both types: the names of their arguments, and what they emit."""
_CONTRARIES = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_OF_BFLOAT16: dict[str, tuple[tuple[str, ...], Emit]] = {
    **{f"h{op}_rn": (_PAIR, _arithmetic(op, exact=True)) for op in ("add", "sub", "mul")},
    **{f"h{op}_sat": (_PAIR, _saturating(op)) for op in ("add", "sub", "mul")},
    "hfma_sat": (_THREE, _saturating("fma")),
    "hfma_relu": (_THREE, lambda b, *args: half.rectified(b, half.arithmetic(b, "fma", args))),
    "hmax_nan": (_PAIR, lambda b, x, y: half.nan_extremum(b, "max", x, y)),
    "hmin_nan": (_PAIR, lambda b, x, y: half.nan_extremum(b, "min", x, y)),
    **{f"h{op}u": (_PAIR, _unless(_compare(contrary))) for op, contrary in _CONTRARIES.items()},
    "hneu": (_PAIR, _compare("ne")),
    "hequ": (_PAIR, _unless(_ordered_ne)),
    "hisnan": (("a",), _is_nan),
    "hisinf": (("a",), half.is_infinite),
}
"""Functions that numba.cuda has for bfloat16 alone."""


def _in(namespace: str, name: str, names: tuple[str, ...], emit: Emit) -> tuple[str, Emitter]:
    """Return the path of a function in a namespace and its emitter: arguments become the namespace's type."""
    path, element = f"{namespace}.{name}", NAMESPACES[namespace]

    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        b = frame.builder
        return emit(b, *(operations.convert(b, number(frame, path, n, given[n]), element) for n in names))

    return path, takes(path, names, body)


def _of_number(path: str, emit: Callable[..., Val], *types: str) -> tuple[str, Emitter]:
    """Return a conversion: emit(builder, the argument, *types)."""

    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        return emit(frame.builder, number(frame, path, "a", given["a"]), *types)

    return path, takes(path, ("a",), body)


def _cast(path: str, element: str) -> tuple[str, Emitter]:
    """Return the constructor of a type: of an 8-bit one it saturates, as CUDA's do."""

    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        return operations.cast(frame.builder, number(frame, path, "a", given["a"]), element, saturate=True)

    return path, takes(path, ("a",), body)


CALLS: dict[str, Emitter] = {
    **dict(_in(space, name, *how) for space in NAMESPACES for name, how in _ALIKE.items()),
    **dict(_in("bf16", name, *how) for name, how in _OF_BFLOAT16.items()),
    **dict(_of_number(f"bf16.{name}", half.conversion, *how) for name, how in half.CONVERSIONS.items()),
    **dict(_of_number(f"bf16.{name}", half.code, *types) for name, types in half.CODES.items()),
    **dict((_cast("fp8.fp8_e4m3", "e4m3"), _cast("fp8.fp8_e5m2", "e5m2"))),
}
"""What a kernel may call, by the name under `cuda`."""
