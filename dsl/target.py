"""Find a user's kernel by FILE.py:kernel, and make its arguments from what the command line says.

An argument is one of
    3, 0.5, true            an int, a float, a bool, typed as numba.cuda types a Python value
    float32:0.5             a number of that type
    float32[1024,64]        an array; what is in it stands after "=": randn (the default of float types),
    rand, zeros (the default
                            of the others), ones, arange, nan, ints(LO,HI), or a number
    @data.npy               an array from a file
each of them in the order of the kernel's parameters, or as NAME=VALUE.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import math
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from gpusim.errors import BadOption, UnknownName, UserError
from gpusim.memory import CAPACITY_BYTES, VirtualArray

DTYPES = (
    "bool",
    "float32",
    "float64",
    *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")),
)
NAMED = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
ARRAY = re.compile(r"^(\w+)\[([^\]]*)\](?:=(.+))?$", re.DOTALL)
INTEGER = re.compile(r"^[+-]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0|[1-9]\d*)$")
INTS = re.compile(r"^ints\(\s*(-?\d+)\s*,\s*(-?\d+)\s*\)$")
FILLS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "randn": lambda rng, shape: rng.standard_normal(shape),
    "rand": lambda rng, shape: rng.random(shape),
    "zeros": lambda rng, shape: np.zeros(shape),
    "ones": lambda rng, shape: np.ones(shape),
    "arange": lambda rng, shape: np.arange(int(np.prod(shape))).reshape(shape),
    "nan": lambda rng, shape: np.full(shape, np.nan),
}
USE = "write 3, 0.5, float32:0.5, float32[1024,64], int32[8]=ints(0,9) or @file.npy"


def is_file_target(name: str) -> bool:
    """Return whether a kernel is named as FILE.py:kernel (or FILE.py alone) and not as a shipped one."""
    return ".py:" in name or name.endswith(".py")


def load_kernel(target: str) -> Any:
    """Return the kernel that FILE.py:kernel names.

    Raise BadOption for a file that does not load, UnknownName for a name it lacks.
    """
    path, _, name = target.rpartition(":") if ".py:" in target else (target, "", "")
    module = load_module(Path(path))
    found = {n: v for n, v in vars(module).items() if is_kernel(v)}
    if not name:
        raise BadOption(f"{path}: which kernel? write {path}:NAME; {_listed('it has', found)}")
    value = vars(module).get(name)
    if inspect.isfunction(value):
        from dsl import cuda

        return cuda.jit(value)
    if name not in found:
        raise UnknownName(unknown(f"{path}: no kernel", name, found, "it has"))
    return value


def is_kernel(value: Any) -> bool:
    """Return whether a value is a kernel that can be launched (and no device function)."""
    launchable = hasattr(value, "py_func") and hasattr(type(value), "__getitem__")
    return launchable and not getattr(value, "device", False)


def load_module(path: Path) -> ModuleType:
    """Run a Python file as a module of its own, its folder first on sys.path and dsl.cuda in the place of
    numba.cuda.
    """
    if not path.is_file():
        raise BadOption(f"{path}: no such file")
    from dsl import cuda
    from dsl.standin import numba_cuda

    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise BadOption(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with numba_cuda(cuda):
            spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as error:  # any mistake of the file's own is the user's to read, in one line
        raise BadOption(f"{path}{_where(error, path)}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _where(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    lines = [
        f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path.resolve()
    ]
    return f":{lines[-1]}" if lines else ""


def unknown(what: str, name: str, names: Iterable[str], have: str = "there are") -> str:
    """Return the message for a name that does not exist: near names if any, else all of them."""
    names = sorted(names)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"{what} {name!r}; " + (f"did you mean {' or '.join(near)}?" if near else _listed(have, names))


def _listed(have: str, names: Iterable[str]) -> str:
    return f"{have}: {', '.join(sorted(names)) or 'none'}"


def dimensions(text: str, option: str) -> tuple[int, ...]:
    """Return "2,3" as (2, 3): one to three whole numbers from 1 on; raise BadOption for anything else."""
    parts = text.strip("() ").split(",")
    if not 1 <= len(parts) <= 3 or not all(re.fullmatch(r"\s*\+?\d+\s*", p) and int(p) > 0 for p in parts):
        raise BadOption(f"{option} {text}: write one to three whole numbers from 1 on, such as 128 or 16,16")
    return tuple(map(int, parts))


def bind(kernel: Any, texts: Sequence[str], seed: int = 0, virtual: bool = False) -> tuple[Any, ...]:
    """Return the arguments of a kernel in order.

    Raise BadOption where one is missing or too many, UnknownName for a wrong name.
    virtual: arrays whose contents do not come from a file have no storage (for counts alone).
    """
    names = list(inspect.signature(kernel.py_func).parameters)
    given = _assign(kernel.py_func.__name__, names, texts)
    rng = np.random.default_rng(seed)
    return tuple(parse_value(given[name], rng, virtual) for name in names)


def _assign(kernel: str, names: list[str], texts: Sequence[str]) -> dict[str, str]:
    signature = f"{kernel}({', '.join(names)})"
    given: dict[str, str] = {}
    in_order = iter(names)
    for text in texts:
        named = NAMED.match(text)
        name = named.group(1) if named else next((n for n in in_order if n not in given), "")
        if not name:
            raise BadOption(f"--arg {text}: {signature} takes {len(names)} arguments, {len(texts)} are given")
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
    """Return one argument; raise BadOption for what cannot be read, UnknownName for an unknown dtype or fill.
    """
    text = text.strip()
    if text.startswith("@"):
        return _from_file(text[1:])
    if array := ARRAY.match(text):
        return _array(array, rng, virtual)
    dtype, colon, value = text.rpartition(":")
    number = _number(value, text)
    return _typed(_dtype(dtype, text), number, text) if colon else number


def _typed(dtype: np.dtype[Any], number: float, text: str) -> Any:
    """Return a number of a type; raise BadOption where an integer type cannot hold it."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if isinstance(number, float) or not info.min <= number <= info.max:
            raise BadOption(f"--arg {text}: {dtype} holds whole numbers from {info.min:,} to {info.max:,}")
    return dtype.type(number)


def _number(value: str, text: str) -> int | float | bool:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if INTEGER.match(value):
        return int(value, 0)
    try:
        return float(value)
    except ValueError:
        raise BadOption(f"--arg {text}: cannot be read; {USE}") from None


def _dtype(name: str, text: str) -> np.dtype[Any]:
    if name not in DTYPES:
        raise UnknownName(unknown(f"--arg {text}: unknown dtype", name, DTYPES))
    return np.dtype(name)


def _array(match: re.Match[str], rng: np.random.Generator, virtual: bool) -> np.ndarray | VirtualArray:
    text, (dtype_name, shape_text, fill) = match.group(), match.groups()
    dtype = _dtype(dtype_name, text)
    extents = shape_text.split(",")
    if not all(re.fullmatch(r"\s*\d+\s*", e) and int(e) > 0 for e in extents):
        raise BadOption(f"--arg {text}: the extents of an array are whole numbers from 1 on, such as "
                        "[1024,64]")
    shape = tuple(map(int, extents))
    if math.prod(shape) * dtype.itemsize > CAPACITY_BYTES:
        raise BadOption(f"--arg {text}: larger than the device's memory, {CAPACITY_BYTES:,} bytes")
    filled = _filled(fill or ("randn" if dtype.kind == "f" else "zeros"), dtype, text)
    return VirtualArray(shape, dtype) if virtual else filled(rng, shape).astype(dtype)


def _filled(
    fill: str, dtype: np.dtype[Any], text: str
) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    if fill == "nan" and dtype.kind != "f":
        raise BadOption(f"--arg {text}: {dtype} has no NaN")
    if fill in FILLS:
        return FILLS[fill]
    if bounds := INTS.match(fill):
        low, high = map(int, bounds.groups())
        if low >= high:
            raise BadOption(f"--arg {text}: ints(LO,HI) needs LO < HI; HI is not drawn")
        return lambda rng, shape: rng.integers(low, high, shape)
    try:
        value = float(fill)
    except ValueError:
        raise UnknownName(unknown(f"--arg {text}: unknown contents", fill, [*FILLS, "ints(LO,HI)"])) from None
    return lambda rng, shape: np.full(shape, value)


def _from_file(path: str) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadOption(f"--arg @{path}: {error}") from None
    if not isinstance(array, np.ndarray) or array.dtype.name not in DTYPES:
        raise BadOption(f"--arg @{path}: holds {getattr(array, 'dtype', type(array).__name__)}, a kernel "
                        f"takes {', '.join(DTYPES)}")
    return array


def run_script(path: Path, arguments: Sequence[str]) -> int:
    """Run a Python script as `python SCRIPT arguments` would, dsl.cuda in the place of numba.cuda.

    Return its exit status.
    An exception of the script's own is printed with the script's part of the traceback, and the status is 1;
    a UserError goes on up.
    """
    if not path.is_file():
        raise BadOption(f"{path}: no such file")
    from dsl import cuda
    from dsl.standin import numba_cuda

    argv, folder = sys.argv, str(path.resolve().parent)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, folder)
    try:
        with numba_cuda(cuda):
            runpy.run_path(str(path), run_name="__main__")
        return 0
    except SystemExit as leave:
        return _status(leave.code)
    except UserError:
        raise
    except Exception as error:
        traceback.print_exception(type(error), error, _from_script(error.__traceback__, str(path)))
        return 1
    finally:
        sys.argv = argv
        sys.path.remove(folder)


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _from_script(frames: TracebackType | None, path: str) -> TracebackType | None:
    """Drop the frames above the script's own first one."""
    start = frames
    while start is not None and start.tb_frame.f_code.co_filename != path:
        start = start.tb_next
    return start or frames
