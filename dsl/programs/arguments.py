"""Make a kernel's arguments from what the command line says.

An argument is one of
    3, 0.5, true            an int, a float, a bool, typed as numba.cuda types a Python value
    float32:0.5             a number of that type
    float32[1024,64]        an array; what is in it stands after "=": randn (the default of float types),
    rand, zeros (the default
                            of the others), ones, arange, nan, ints(LO,HI), or a number
    @data.npy               an array from a file
    (3, float32[8])         a tuple of arguments
each of them in the order of the kernel's parameters, or as NAME=VALUE. A value that the type cannot hold is
refused: nothing wraps, saturates or loses its fraction.
"""

from __future__ import annotations

import inspect
import math
import re
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dsl.semantics.floats import narrow
from dsl.semantics.near import unknown
from dsl.warpir.formats import FORMATS, decode
from gpusim.errors import BadOption, UnknownName, reason
from gpusim.memory import CAPACITY_BYTES, VirtualArray
from gpusim.table import counted

NARROW = {str(form.dtype): form for form in FORMATS.values()}
DTYPES = (
    "bool",
    "float32",
    "float64",
    *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")),
    *NARROW,
)
NAMED = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
ARRAY = re.compile(r"^(\w+)\[([^\]]*)\](?:=(.+))?$", re.DOTALL)
INTEGER = re.compile(r"^[+-]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0|[1-9]\d*)$")
INTS = re.compile(r"^ints\(\s*(-?\d{1,40})\s*,\s*(-?\d{1,40})\s*\)$")
EXTENT = re.compile(r"^\s*\+?\d{1,40}\s*$")
"""Digits are counted before they are read: Python takes no integer of over 4,300."""
INFINITY = re.compile(r"^[+-]?inf(inity)?$", re.IGNORECASE)
Fill = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
FILLS: dict[str, Fill] = {
    "randn": lambda rng, shape: rng.standard_normal(shape),
    "rand": lambda rng, shape: rng.random(shape),
    "zeros": lambda rng, shape: np.zeros(shape),
    "ones": lambda rng, shape: np.ones(shape),
    "arange": lambda rng, shape: np.arange(math.prod(shape)).reshape(shape),
    "nan": lambda rng, shape: np.full(shape, np.nan),
}
USE = "write 3, 0.5, float32:0.5, float32[1024,64], int32[8]=ints(0,9), (3, 4) or @file.npy"


def dimensions(text: str, option: str) -> tuple[int, ...]:
    """Return "2,3" as (2, 3): one to three whole numbers from 1 on; raise BadOption for anything else."""
    parts = text.strip("() ").split(",")
    if not 1 <= len(parts) <= 3 or not all(EXTENT.match(p) and int(p) > 0 for p in parts):
        raise BadOption(f"{option} {text}: write one to three whole numbers from 1 on, such as 128 or 16,16")
    return tuple(map(int, parts))


def bind(kernel: Any, texts: Sequence[str], seed: int = 0, virtual: bool = False) -> tuple[Any, ...]:
    """Return the arguments of a kernel in order.

    Raise BadOption where one is missing or too many, UnknownName for a wrong name.
    virtual: arrays whose contents do not come from a file have no storage (for counts alone).
    """
    names = _parameters(kernel)
    given = _assign(kernel.py_func.__name__, names, texts)
    rng = np.random.default_rng(seed)
    return tuple(parse_value(given[name], rng, virtual) for name in names)


def _parameters(kernel: Any) -> list[str]:
    """Return the names of a kernel's parameters; raise BadOption for kinds that the language does not have.
    """
    parameters = inspect.signature(kernel.py_func).parameters.values()
    odd = [str(p) for p in parameters if p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if odd:
        code = kernel.py_func.__code__
        raise BadOption(
            f"{code.co_filename}:{code.co_firstlineno}: kernel {kernel.py_func.__name__} has the parameter "
            f"{odd[0]}; *args, **kwargs, keyword-only and positional-only parameters are not in the language"
        )
    return [p.name for p in parameters]


def _assign(kernel: str, names: list[str], texts: Sequence[str]) -> dict[str, str]:
    signature = f"{kernel}({', '.join(names)})"
    given: dict[str, str] = {}
    in_order = iter(names)
    for text in texts:
        named = NAMED.match(text)
        name = named.group(1) if named else next((n for n in in_order if n not in given), "")
        if not name:
            raise BadOption(f"--arg {text}: {signature} takes {counted(len(names), 'argument')}, "
                            f"{len(texts)} {'is' if len(texts) == 1 else 'are'} given")
        if name not in names:
            raise UnknownName(unknown(f"--arg {text}: {signature} has no parameter", name, names, "it has"))
        if name in given:
            raise BadOption(f"--arg {text}: {name} is given twice")
        given[name] = named.group(2) if named else text
    missing = [n for n in names if n not in given]
    if missing:
        raise BadOption(f"{signature}: --arg is missing for {', '.join(missing)}; {USE}")
    return given


def parse_value(text: str, rng: np.random.Generator, virtual: bool = False) -> Any:
    """Return one argument.

    Raise BadOption for what cannot be read or does not fit its type, UnknownName for an unknown dtype or
    fill.
    """
    text = text.strip()
    if text.startswith("("):
        return tuple(parse_value(item, rng, virtual) for item in _items(text))
    if text.startswith("@"):
        return _from_file(text[1:])
    if array := ARRAY.match(text):
        return _array(array, rng, virtual)
    name, colon, value = text.rpartition(":")
    dtype = _dtype(name, text) if colon else None
    number = _number(value, text)
    if number is None:
        raise BadOption(f"--arg {text}: cannot be read; {USE}")
    return number if dtype is None else _typed(np.array(_held(number, dtype, text)), dtype)[()]


def _items(text: str) -> list[str]:
    """Return the items of a tuple "(a, b)", whose commas stand in no bracket; raise BadOption for no tuple.
    """
    items, depth = [""], 0
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 1 and letter == ",":
            items.append("")
        elif depth > 1 or (depth == 1 and at):
            items[-1] += letter
        if depth == 0 and at < len(text) - 1:
            break
    if depth or not text.endswith(")") or at < len(text) - 1:
        raise BadOption(f"--arg {text}: the brackets of a tuple do not match; write (3, float32[8])")
    filled = items[:-1] if not items[-1].strip() else items
    if not all(item.strip() for item in filled):
        raise BadOption(f"--arg {text}: an item of the tuple is empty; write (3, float32[8])")
    return filled


def _number(value: str, text: str) -> int | float | bool | None:
    """Return a number as written, None if it is none; raise BadOption for a float beyond float64."""
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        number = int(value, 0) if INTEGER.match(value) else float(value)
    except ValueError:
        return None
    if isinstance(number, float) and math.isinf(number) and not INFINITY.match(value.strip()):
        raise BadOption(f"--arg {text}: {_range(np.dtype('float64'))}; write inf for infinity")
    return number


def _typed(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return numbers in a type, each rounded once (ml_dtypes takes float64 by way of float32)."""
    form = NARROW.get(dtype.name)
    return values.astype(dtype) if form is None else narrow(values.astype(np.float64), form)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name in NARROW


def _largest(dtype: np.dtype[Any]) -> float:
    """Return the largest finite number of a float type."""
    form = NARROW.get(dtype.name)
    return float(np.finfo(dtype).max) if form is None else decode(form.largest, form)


def _range(dtype: np.dtype[Any]) -> str:
    """Return what a type holds, in words."""
    if dtype.kind == "b":
        return "bool holds false and true (0 and 1)"
    if _is_float(dtype):
        return f"{dtype} holds numbers up to {_largest(dtype):.4g} in size"
    info = np.iinfo(dtype)
    return f"{dtype} holds whole numbers from {info.min:,} to {info.max:,}"


def _held(number: float, dtype: np.dtype[Any], text: str) -> float:
    """Return a number that a type can hold (floats round); raise BadOption for another one."""
    if _is_float(dtype):
        has_infinity = dtype.name not in NARROW or NARROW[dtype.name].infinite
        fits = number != number or abs(number) <= _largest(dtype) or (has_infinity and math.isinf(number))
    elif dtype.kind == "b":
        fits = number in (0, 1) and not isinstance(number, float)
    else:
        fits = not isinstance(number, float) and np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
    if not fits:
        raise BadOption(f"--arg {text}: {_range(dtype)}")
    return number


def _dtype(name: str, text: str) -> np.dtype[Any]:
    if name not in DTYPES:
        raise UnknownName(unknown(f"--arg {text}: unknown dtype", name, DTYPES))
    return np.dtype(name)


def _array(match: re.Match[str], rng: np.random.Generator, virtual: bool) -> np.ndarray | VirtualArray:
    text, (dtype_name, shape_text, fill) = match.group(), match.groups()
    dtype = _dtype(dtype_name, text)
    extents = shape_text.split(",")
    if not all(EXTENT.match(e) and int(e) > 0 for e in extents):
        raise BadOption(f"--arg {text}: the extents of an array are whole numbers from 1 on, such as "
                        "[1024,64]")
    shape = tuple(map(int, extents))
    if math.prod(shape) * dtype.itemsize > CAPACITY_BYTES:
        raise BadOption(f"--arg {text}: larger than the device's memory, {CAPACITY_BYTES:,} bytes")
    filled = _filled(fill or ("randn" if _is_float(dtype) else "zeros"), dtype, math.prod(shape), text)
    return VirtualArray(shape, dtype) if virtual else _typed(filled(rng, shape), dtype)


def _filled(fill: str, dtype: np.dtype[Any], size: int, text: str) -> Fill:
    """Return what fills an array of `size` elements; raise BadOption where the type cannot hold a value of
    it.
    """
    if fill in FILLS:
        _check_fill(fill, dtype, size, text)
        return FILLS[fill]
    if bounds := INTS.match(fill):
        return _drawn(int(bounds[1]), int(bounds[2]), dtype, text)
    number = _number(fill, text)
    if number is None:
        raise UnknownName(unknown(f"--arg {text}: unknown contents", fill, [*FILLS, "ints(LO,HI)"]))
    value = _held(number, dtype, text)
    return lambda rng, shape: np.full(shape, value)


def _check_fill(fill: str, dtype: np.dtype[Any], size: int, text: str) -> None:
    if fill == "arange":
        _held(size - 1, dtype, text)
    if _is_float(dtype):
        return
    if fill == "nan":
        raise BadOption(f"--arg {text}: {dtype} has no NaN")
    if fill in ("rand", "randn"):
        raise BadOption(f"--arg {text}: {fill} draws fractions, and {_range(dtype)}; take ints(LO,HI)")


def _drawn(low: int, high: int, dtype: np.dtype[Any], text: str) -> Fill:
    """Return what draws whole numbers in [low, high), all of which the type must hold."""
    if low >= high:
        raise BadOption(f"--arg {text}: ints(LO,HI) needs LO < HI; HI is not drawn")
    for bound in (low, high - 1):
        _held(bound, dtype, text)
    drawn_as = np.uint64 if high > 1 << 63 else np.int64
    _held(low, np.dtype(drawn_as), text)
    _held(high - 1, np.dtype(drawn_as), text)
    return lambda rng, shape: rng.integers(low, high, shape, dtype=drawn_as)


def _from_file(path: str) -> np.ndarray:
    """Return the array of a .npy file; raise BadOption for what no kernel can take."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BadOption(f"--arg @{path}: {_why_not_read(error)}") from None
    if not isinstance(array, np.ndarray) or not (array.dtype.fields or array.dtype.name in DTYPES):
        raise BadOption(f"--arg @{path}: holds {getattr(array, 'dtype', type(array).__name__)}, a kernel "
                        f"takes {', '.join(DTYPES)}, and records of them")
    if not array.dtype.isnative:
        raise BadOption(f"--arg @{path}: holds {array.dtype.str}, {array.dtype.name} in the other byte "
                        "order; save a.astype(a.dtype.newbyteorder('='))")
    if array.ndim == 0:
        raise BadOption(f"--arg @{path}: holds one number and no array (0 dimensions); write "
                        f"{array.dtype.name}:{array.item()}, or save a.reshape(1)")
    return array


def _why_not_read(error: Exception) -> str:
    """Return numpy's reason, or a plainer one where numpy takes a file of another kind for a pickle."""
    if isinstance(error, OSError) and error.strerror:
        return reason(error)
    return "not a .npy file of numbers" if "pickle" in str(error) else str(error)
