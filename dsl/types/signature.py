"""Signatures given to `@cuda.jit`: the types that scalar arguments are converted to, as numba.cuda does.

What it models: an eager signature such as "void(int32[:], int32)" makes the kernel take an int32, whatever
the caller passes; of several, the one that the arguments fit best by numba's conversions. What it leaves out:
the types of arrays in a launch (an array brings its own) and return types. Which ncu metric checks it: the
split between 32-bit and 64-bit arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from dsl.types import TYPE_NAMES, AnyType, ArgType, TupleType, cast_value, element_type
from dsl.warpir.formats import FORMATS
from gpusim.errors import LaunchRefused, NoSuchOverload, UnsupportedFeature
from gpusim.table import counted


def argument_types(signature: Any) -> tuple[Any, ...] | None:
    """Return the numba types of a signature's arguments: a string, a numba signature, a tuple of types, or a
    list of them.

    None: no signature. Of a list the first counts. Raises UnsupportedFeature for what numba cannot read.
    """
    if signature is None:
        return None
    from numba.core import errors, sigutils

    first = signature[0] if isinstance(signature, list) else signature
    try:
        return tuple(sigutils.normalize_signature(first)[0])
    except (TypeError, ValueError, NameError, SyntaxError, errors.NumbaError) as error:
        said = f"the signature {first!r} of cuda.jit cannot be read: {error}"
        raise UnsupportedFeature(said) from error


def signatures(option: Any) -> list[Any]:
    """Return the signatures that an option of cuda.jit holds: none, one, or a list of them."""
    return [] if option is None else [*option] if isinstance(option, list) else [option]


def best_of(kernel: str, option: Any, args: tuple[Any, ...]) -> Any:
    """Return the signature that the arguments fit with the least conversion; None where there is none.

    Raise NoSuchOverload where none of several fits.
    """
    several = signatures(option)
    if len(several) < 2:
        return several[0] if several else None
    given = tuple(map(_numba_type, args))
    rated = [(_rating(given, argument_types(s) or ()), s) for s in several]
    fitting = [(rating, s) for rating, s in rated if rating is not None]
    if not fitting:
        types = ", ".join(map(str, given))
        raise NoSuchOverload(f"kernel {kernel}: No matching definition for argument types {types}; its "
                             f"signatures are {'; '.join(map(str, several))}")
    return min(fitting, key=lambda pair: pair[0])[1]


def _numba_type(value: Any) -> Any:
    import numba

    return numba.typeof(getattr(value, "_view", value))


@cache
def _conversions() -> Any:
    from numba.core.typing.context import Context

    return Context()


def _rating(given: tuple[Any, ...], wanted: tuple[Any, ...]) -> tuple[int, int, int] | None:
    """Return how many arguments are converted unsafely, safely and by promotion; None where one cannot be.

    An argument that is None fits any type.
    """
    if len(given) != len(wanted):
        return None
    kinds = [_conversions().can_convert(a, b) for a, b in zip(given, wanted, strict=True) if a is not None]
    if None in kinds:
        return None
    names = [kind.name for kind in kinds]
    return names.count("unsafe"), names.count("safe"), names.count("promote")


@dataclass(frozen=True)
class Declared:
    """Hold what a signature makes of a device function's numbers: element types, None for other things."""

    arguments: tuple[str | None, ...]
    result: str | None


@lru_cache(maxsize=4096)
def declared(function: Any, given: tuple[str | None, ...]) -> Declared | None:
    """Return what the signature of a device function says of a call; None for one without a signature.

    given: the element type of each argument, None of what is no number. Of several signatures the one counts
    that the numbers fit with the least conversion.
    """
    options = getattr(function, "options", None)
    several = signatures(options.get("signature")) if isinstance(options, dict) else []
    if not several:
        return None
    from numba.core import sigutils

    actual = tuple(t and to_numba(ArgType(t)) for t in given)
    rated = [(_rating(actual, argument_types(s) or ()), k) for k, s in enumerate(several)]
    fitting = [(rating, k) for rating, k in rated if rating is not None]
    types, result = sigutils.normalize_signature(several[min(fitting)[1] if fitting else 0])
    return Declared(tuple(map(element_type, types)), element_type(result))


def to_numba(type_: AnyType) -> Any:
    """Return numba's type of a kernel argument; None where numba has none."""
    from numba.core import types

    names: Any = types
    if isinstance(type_, TupleType):
        return types.BaseTuple.from_types([to_numba(item) for item in type_.items])
    if not isinstance(type_, ArgType) or not isinstance(type_.type, str):
        return None
    name = TYPE_NAMES[type_.type]
    element = getattr(names, "boolean" if name == "bool" else name, None)
    scalar = type_.ndim is None or element is None
    return element if scalar else names.Array(element, type_.ndim, type_.layout)


def is_numba_type(value: Any) -> bool:
    """Return whether a value is one of numba's types."""
    from numba.core import types

    return isinstance(value, types.Type)


def from_numba(type_: Any) -> AnyType:
    """Return a kernel argument's type for a type of numba's.

    Raise UnsupportedFeature for one that the language does not have.
    """
    if hasattr(type_, "layout"):
        return replace(_scalar(type_.dtype), ndim=type_.ndim, layout=type_.layout)
    if hasattr(type_, "types"):
        return TupleType(tuple(map(from_numba, type_.types)), tuple(getattr(type_, "fields", ())))
    return _scalar(type_)


def _scalar(type_: Any) -> ArgType:
    element = element_type(type_)
    if element is None:
        raise UnsupportedFeature(f"the type {type_} of a signature is not in the kernel language")
    return ArgType(element)


def cast_scalars(kernel: str, signature: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with scalars in the signature's types.

    Of several signatures the best counts. Raise LaunchRefused if their number differs.
    """
    wanted = argument_types(best_of(kernel, signature, args))
    if wanted is None:
        return args
    if len(wanted) != len(args):
        raise LaunchRefused(f"kernel {kernel}: its signature has {counted(len(wanted), 'argument')}, "
                            f"{len(args)} {'was' if len(args) == 1 else 'were'} given")
    return tuple(_cast(value, type_) for value, type_ in zip(args, wanted, strict=True))


def _cast(value: Any, type_: Any) -> Any:
    """Return a scalar in a numba type; an integer that does not fit wraps, as in C."""
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        return value
    element = element_type(type_)
    if element in FORMATS and isinstance(value, (int, float, np.number)):
        return FORMATS[element].dtype.type(cast_value(np.asarray(value).item(), element))
    name = {"boolean": "bool"}.get(str(type_), str(type_))
    try:
        return np.asarray(value).astype(np.dtype(name))[()]
    except TypeError:
        return value
