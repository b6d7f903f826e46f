"""The numbers of the Python oracle: they look like Python's and compute as a kernel's do.

What it models: numba's types for each operator (dsl/types), integers that wrap at their width, division by
zero without an exception, IEEE floats, and the edges that dsl/semantics/lane_ops.py lists. What it leaves
out: the common type of a variable, of `x if c else y` and of `and` and `or`: each value keeps the type it was
made with; and fused multiply-adds. Checked by no ncu metric; tests hold it against the interpreter and numba.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from dsl import types
from dsl.lowering.operations import LARGEST_EXPONENT
from dsl.semantics import floats
from dsl.semantics.lane_ops import DTYPES
from dsl.warpir.formats import FORMATS
from dsl.warpir.ir import BYTES

FLOAT_BASES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, **dict.fromkeys(FORMATS, np.float64)}
"""What holds the floats of each type: a narrow one is a float64 that the type can hold."""
EXACT_IN_FLOAT = 1 << 53
BITWISE = ("and", "or", "xor", "shl", "shr")


class Number:
    """Be a number of a kernel's type, `element`; KINDS has a class of each."""

    element: ClassVar[str]


class Operators:
    """Hold the operators of kernels for the classes of KINDS."""

    __array_ufunc__ = None  # numpy's own scalars leave the operators to this class

    def __neg__(self) -> Any:
        return unary("neg", self)

    def __pos__(self) -> Any:
        return unary("pos", self)

    def __invert__(self) -> Any:
        return unary("not", self)

    def __abs__(self) -> Any:
        return number(abs(_plain(self)), element_of(self) or "")


def _binary_method(op: str, reflected: bool) -> Callable[..., Any]:
    def method(self: Any, other: Any, *modulus: Any) -> Any:
        return binary(op, other, self) if reflected else binary(op, self, other)

    return method


def _comparison_method(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        kinds: Any = type(self), type(other)
        return _comparison(compare, *kinds)(self, other)

    return method


@functools.cache
def _comparison(compare: Callable[[Any, Any], bool], x: type, y: type) -> Callable[[Any, Any], Any]:
    """Return how two classes of numbers are compared; raise TypeError where they are not."""
    a, b = _element_of(x), _element_of(y)
    if a is None or b is None:
        return lambda self, other: NotImplemented
    if a in types.STORED or b in types.STORED:
        raise TypeError(f"a comparison of {types.TYPE_NAMES[a]} and {types.TYPE_NAMES[b]}")
    if a in types.FLOATS or b in types.FLOATS:
        common = types.comparison_type(a, b)
        left, right = _operand(x, common), _operand(y, common)
        return lambda self, other: Truth(compare(left(self), right(other)))
    return lambda self, other: Truth(compare(int(self), int(other)))


_METHODS = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "truediv", "floordiv": "floordiv", "floormod": "mod",
    "pow": "pow", "shl": "lshift", "shr": "rshift", "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip
"""Python's name of each operator's method."""
for _op, _name in _METHODS.items():
    setattr(Operators, f"__{_name}__", _binary_method(_op, reflected=False))
    setattr(Operators, f"__r{_name}__", _binary_method(_op, reflected=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Operators, f"__{_name}__", _comparison_method(getattr(operator, _name)))


_OPERATORS = {name: f for name, f in vars(Operators).items() if callable(f) or name == "__array_ufunc__"}


def _kind(element: str) -> Any:
    """Make the class of an element type; numpy wants its own scalar first among the bases."""
    base: Any = FLOAT_BASES.get(element, int)
    own = {"element": element, "__hash__": base.__hash__, **_OPERATORS}
    if element == "pred":
        own["__repr__"] = lambda self: repr(bool(self))
    elif element in types.FLOATS:
        own["__repr__"] = lambda self: repr(float(self))
    return type(types.TYPE_NAMES[element], (base, Number), own)


KINDS = {element: _kind(element) for element in BYTES}
"""The class of each element type: an int, or numpy's float, with the operators of kernels."""
Truth = KINDS["pred"]


def element_of(value: Any) -> str | None:
    """Return the element type of a number, None of anything else."""
    kind: Any = type(value)
    return _element_of(kind)


@functools.cache
def _element_of(kind: type) -> str | None:
    if issubclass(kind, Number):
        return kind.element
    if issubclass(kind, np.generic):
        return types.element_type(np.dtype(kind))
    return next(
        (e for base, e in ((bool, "pred"), (int, "s64"), (float, "f64")) if issubclass(kind, base)), None
    )


def _plain(value: Any) -> Any:
    """Return a number as Python's int, or as numpy's own float."""
    base = FLOAT_BASES.get(element_of(value) or "")
    return base(value) if base is not None else int(value)


def number(value: Any, element: str, saturate: bool = False) -> Any:
    """Convert to an element type as the machine does: integers wrap, floats round, truncate and saturate.

    saturate: too large a number for an 8-bit float becomes the largest finite one.
    """
    kind: Any = type(value)
    return _converted(value, element, True) if saturate else _conversion(kind, element)(value)


@functools.cache
def _conversion(source: type, element: str) -> Callable[[Any], Any]:
    """Return how numbers of a class become those of an element type, by the shortest way."""
    kind = KINDS[element]
    if source is kind:
        return lambda value: value
    if issubclass(source, int) and element not in ("pred", *types.FLOATS):
        return _wrapping(element)
    if element in types.FLOATS and element not in FORMATS:
        return kind if _element_of(source) in (None, "pred", *types.FLOATS) else _from_whole(element)
    return lambda value: _converted(value, element)


def _wrapping(element: str) -> Callable[[Any], Any]:
    """Return the conversion of integers to an integer type."""
    kind, limits = KINDS[element], np.iinfo(DTYPES[element])
    low, high = int(limits.min), int(limits.max)

    def convert(value: Any) -> Any:
        whole = int(value)
        return kind(whole if low <= whole <= high else types.cast_value(whole, element))

    return convert


def _from_whole(element: str) -> Callable[[Any], Any]:
    """Return the conversion of integers to float32 or float64; Python's float holds those up to 2**53."""
    kind = KINDS[element]

    def convert(value: Any) -> Any:
        whole = int(value)
        if -EXACT_IN_FLOAT <= whole <= EXACT_IN_FLOAT:
            return kind(float(whole))
        return kind(DTYPES[element_of(value) or "s64"].type(value).astype(DTYPES[element]))

    return convert


def _converted(value: Any, element: str, saturate: bool = False) -> Any:
    """Convert a number that has no shorter way."""
    kind, source = KINDS[element], element_of(value)
    if type(value) is kind:
        return value
    bare = value if source is None else float(value) if source in types.FLOATS else int(value)
    return kind(types.cast_value(bare, element, saturate, source or "f64"))


def same_or_computable(value: Any, element: str) -> Any:
    """Convert as `number` where the kernel does not ask for it; raise TypeError from and to 8-bit floats."""
    source = element_of(value)
    if source != element and {source, element} & set(types.STORED):
        names = (types.TYPE_NAMES.get(e or "", "thing without a type") for e in (source, element))
        raise TypeError("a {} where a {} is needed".format(*names))
    return number(value, element)


@functools.cache
def element_in(dtype: np.dtype[Any]) -> str:
    """Return the element type of an array's dtype, in any byte order."""
    return types.NUMPY_NAMES[dtype.name]


def sized(value: int, dtype: np.dtype[Any]) -> Any:
    """Return a number in the type that numpy names, integers wrapped at the width."""
    return number(value, element_in(dtype))


def literal(value: Any) -> Any:
    """Return a constant as kernels compute with it: numbers typed, tuples item by item, the rest as it is."""
    if type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_make")):
        return types.rebuilt(value, map(literal, value))
    if type(value) is int:
        fits = -(1 << 63) <= value < 1 << 64
        return KINDS["s64" if value < 1 << 63 else "u64"](value) if fits else value
    if type(value) is float:
        return KINDS["f64"](value)
    element = element_of(value) if isinstance(value, np.generic) else None
    return value if element is None else number(value.item(), element)


def _repeated(x: Any, n: int) -> Any:
    """Raise to a constant power by squaring, as the front end does."""
    result, square, left = None, x, abs(n)
    while left:
        if left & 1:
            result = square if result is None else result * square
        left >>= 1
        square = square * square if left else square
    one = number(1, x.element)
    return one if result is None else one / result if n < 0 else result


def _power(a: Any, b: Any, element: str) -> Any:
    """Return a ** b: multiplications for a small whole exponent, else the library's pow."""
    is_float = element in types.FLOATS
    if element_of(b) not in types.FLOATS and abs(b) <= LARGEST_EXPONENT and (b >= 0 or is_float):
        return _repeated(number(a, element), int(b))
    if not is_float:
        return NotImplemented
    both = [np.atleast_1d(np.asarray(_plain(number(v, element)))) for v in (a, b)]
    return number(floats.library("pow", *both)[0], element)


def _floor_fix(x: Any, y: Any) -> tuple[Any, bool]:
    """Return the truncated remainder, and whether rounding down moves it by one divisor."""
    rem = np.fmod(x, y)
    return rem, bool(rem != 0 and (rem < 0) != (y < 0))


def _float_floormod(x: Any, y: Any) -> Any:
    rem, fix = _floor_fix(x, y)
    return rem + y if fix else np.copysign(rem, y)


def _float_floordiv(x: Any, y: Any) -> Any:
    """Divide as Python does, and as numba does by zero: x / y."""
    rem, fix = _floor_fix(x, y)
    quotient = (x if y == 0 else np.copysign(x - rem, x)) / y
    quotient = quotient - type(x)(1) if fix else quotient
    down = np.floor(quotient)
    return down + type(x)(1) if quotient - down > 0.5 else down


def _shift_amount(n: int) -> int:
    """Return a shift amount; a negative one counts as large."""
    return min(n & 0xFFFFFFFFFFFFFFFF, 64)


_SHARED: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}
_INTEGER = {
    **_SHARED,
    "floordiv": lambda x, y: x // y if y else 0,
    "floormod": lambda x, y: x % y if y else 0,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": lambda x, n: x << _shift_amount(n),
    "shr": lambda x, n: x >> _shift_amount(n),
}
_FLOAT = {**_SHARED, "div": operator.truediv, "floordiv": _float_floordiv, "floormod": _float_floormod}


DIVISIONS = frozenset({"div", "floordiv", "floormod"})
on_zero: list[Callable[[], None]] = []
"""What divisions by zero call: one function while a kernel made with debug=True runs."""


def binary(op: str, a: Any, b: Any) -> Any:
    """Return `a op b` (op as in dsl.types.binary_type), NotImplemented for what is not two numbers."""
    if on_zero and op in DIVISIONS and b == 0:
        on_zero[-1]()
    kinds: Any = type(a), type(b)
    return _computation(op, *kinds)(a, b)


@functools.cache
def _computation(op: str, a: type, b: type) -> Callable[[Any, Any], Any]:
    """Return how two classes of numbers are computed: by giving NotImplemented where they are not."""
    x, y = _element_of(a), _element_of(b)
    stored, floating = {x, y} & set(types.STORED), {x, y} & set(types.FLOATS)
    if x is None or y is None or stored or (op in BITWISE and floating):
        return functools.partial(_complex, op)
    element = types.binary_type(op, x, y)
    finish = _conversion(FLOAT_BASES.get(element, int), element)
    method = _own_method(op, a, b, element)
    if method is not None:
        return lambda u, v: finish(method(u, v))
    compute = (_FLOAT if element in types.FLOATS else _INTEGER).get(op)
    if compute is None:
        return lambda u, v: _power(u, v, element)
    left, right = _operand(a, element), _operand(b, element)
    return lambda u, v: finish(compute(left(u), right(v)))


def _own_method(op: str, a: type, b: type, element: str) -> Callable[[Any, Any], Any] | None:
    """Return the method of int or of numpy's float that takes both operands as they are; None without one."""
    base = FLOAT_BASES.get(element, int)
    if base is int:
        fits = op in _SHARED and all(issubclass(k, int) and _holds_all_of(element, k) for k in (a, b))
    else:
        fits = op in (*_SHARED, "div") and a is b is KINDS[element]
    return getattr(base, f"__{_METHODS[op]}__") if fits else None


def _operand(kind: type, element: str) -> Callable[[Any], Any]:
    """Return how numbers of a class become operands: an element type's as Python's int or numpy's float."""
    base, convert = FLOAT_BASES.get(element, int), _conversion(kind, element)
    is_rounded = element in types.FLOATS and element not in FORMATS and _element_of(kind) in types.FLOATS
    if is_rounded or _holds_all_of(element, kind):
        return base
    return lambda value: base(convert(value))


def _holds_all_of(element: str, kind: type) -> bool:
    """Say whether an integer type has a place for every number of a class of integers."""
    source = _element_of(kind)
    if source is None or {source, element} & {*types.FLOATS}:
        return False
    if "pred" in (source, element):
        return source == "pred"
    inner, outer = np.iinfo(DTYPES[source]), np.iinfo(DTYPES[element])
    return bool(outer.min <= inner.min and inner.max <= outer.max)


def _complex(op: str, a: Any, b: Any) -> Any:
    """Return `a op b` of which one is complex: complex64 if the other fits in a float32, else complex128."""
    name = {"div": "truediv"}.get(op, op)
    if name not in ("add", "sub", "mul", "truediv", "pow") or not any(map(np.iscomplexobj, (a, b))):
        return NotImplemented
    return getattr(operator, name)(*map(_in_numpy, (a, b)))


def _in_numpy(value: Any) -> Any:
    """Return a number as numpy's scalar of its type."""
    element = element_of(value)
    return value if element is None else DTYPES[element].type(value)


_UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos, "not": operator.invert}


def unary(op: str, a: Any) -> Any:
    """Return -a ("neg"), +a ("pos") or ~a ("not"): computed in its own width, then widened."""
    if a.element in types.STORED:
        raise TypeError(f"arithmetic of {types.TYPE_NAMES[a.element]}")
    if op == "not" and a.element in types.FLOATS:
        raise TypeError(f"~ of a {types.TYPE_NAMES[a.element]}")
    if op == "not" and a.element == "pred":
        return Truth(not a)
    result = types.unary_type(a.element)
    own = result if a.element == "pred" else a.element
    return number(number(_UNARY[op](_plain(number(a, own))), own), result)


def extremum(a: Any, b: Any, wins: Callable[[Any, Any], bool]) -> Any:
    """Return a where wins(a, b), else b, in their common type; NaN loses."""
    element = types.unify(element_of(a) or "", element_of(b) or "")
    x, y = number(a, element), number(b, element)
    return x if y != y else y if x != x else x if wins(x, y) else y
