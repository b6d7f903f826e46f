"""Signatures given to `@cuda.jit`: the types that scalar arguments are converted to, as numba.cuda does.

What it models: an eager signature such as "void(int32[:], int32)" makes the kernel take an int32, whatever
the caller passes. What it leaves out: the types of arrays in a launch (an array brings its own) and return
types. Which ncu metric checks it: the split between 32-bit and 64-bit arithmetic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dsl.types import AnyType, ArgType, TupleType, element_type
from gpusim.errors import LaunchRefused, UnsupportedFeature


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
        raise UnsupportedFeature(f"the signature {first!r} of cuda.jit cannot be read: {error}") from error


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

    Raise LaunchRefused if their number differs.
    """
    wanted = argument_types(signature)
    if wanted is None:
        return args
    if len(wanted) != len(args):
        raise LaunchRefused(f"kernel {kernel}: its signature has {len(wanted)} arguments, {len(args)} were "
                            "given")
    return tuple(_cast(value, type_) for value, type_ in zip(args, wanted, strict=True))


def _cast(value: Any, type_: Any) -> Any:
    """Return a scalar in a numba type; an integer that does not fit wraps, as in C."""
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        return value
    name = {"boolean": "bool"}.get(str(type_), str(type_))
    try:
        return np.asarray(value).astype(np.dtype(name))[()]
    except TypeError:
        return value
