"""Find a user's kernel by FILE.py:kernel, and run a user's script, dsl.cuda in the place of numba.cuda.

What it leaves out: the kernel's arguments (dsl/programs/arguments.py). A mistake in the file is one message
with the file and the line.
"""

from __future__ import annotations

import importlib.util
import inspect
import runpy
import sys
import tokenize
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from dsl.semantics.near import did_you_mean, listed
from gpusim.errors import BadOption, UnknownName, UserError


def is_file_target(name: str) -> bool:
    """Return whether a kernel is named as FILE.py:kernel (or FILE.py alone) and not as a shipped one."""
    return ".py:" in name or name.endswith(".py")


def load_kernel(target: str) -> Any:
    """Return the kernel that FILE.py:kernel names; a function without cuda.jit is compiled as one.

    Raise BadOption for a file that does not load, UnknownName for a name it lacks.
    """
    path, _, name = target.rpartition(":") if ".py:" in target else (target, "", "")
    module = load_module(Path(path))
    kernels = [n for n, v in vars(module).items() if is_kernel(v)]
    plain = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
    has = listed("it has", kernels) + (f"; {listed('functions without cuda.jit', plain)}" if plain else "")
    if not name:
        raise BadOption(f"{path}: which kernel? write {path}:NAME; {has}")
    value = vars(module).get(name)
    if inspect.isfunction(value):
        from dsl import cuda

        return cuda.jit(value)
    if getattr(value, "device", False):
        raise UnknownName(f"{path}: {name} is a device function, which kernels call; {has}")
    if name not in kernels:
        near = did_you_mean(name, [*kernels, *plain])
        raise UnknownName(f"{path}: no kernel {name!r}; {near or has}")
    return value


def is_kernel(value: Any) -> bool:
    """Return whether a value is a kernel that can be launched (and no device function)."""
    launchable = hasattr(value, "py_func") and hasattr(type(value), "__getitem__")
    return launchable and not getattr(value, "device", False)


def load_module(path: Path) -> ModuleType:
    """Run a Python file as a module of its own, its folder first on sys.path and dsl.cuda in the place of
    numba.cuda.

    What it prints goes to stderr, so that it never stands inside a CSV or JSON report.
    """
    _check_file(path)
    from dsl import cuda
    from dsl.programs.standin import numba_cuda

    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise BadOption(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with numba_cuda(cuda), redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except UserError as error:
        raise at_line(error, path) from error
    except SystemExit as leave:
        raise BadOption(f"{path}{_where(leave, path)}: sys.exit({leave.code!r}) while the file is imported; "
                        "put that under if __name__ == '__main__'") from leave
    except Exception as error:  # any mistake of the file's own is the user's to read, in one line
        raise BadOption(f"{path}{_where(error, path)}: {_said(error)}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _check_file(path: Path) -> None:
    """Raise BadOption for a path that is no file, or no text that Python can read."""
    if path.is_dir():
        raise BadOption(f"{path} is a directory; name a Python file in it")
    if not path.is_file():
        raise BadOption(f"{path}: no such file")
    try:
        with tokenize.open(path) as file:
            file.read()
    except OSError as error:
        raise BadOption(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise BadOption(f"{path}:{line}: not {error.encoding.upper()}: {error}; save the file as UTF-8, or "
                        "name its encoding in its first line: # -*- coding: latin-1 -*-") from None
    except SyntaxError as error:  # an encoding that does not exist
        raise BadOption(f"{path}:1: {_said(error)}") from None


def _said(error: BaseException) -> str:
    """Return the class and text of an exception in one line; of a SyntaxError without the place."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}"


def _where(error: BaseException, path: Path) -> str:
    """Return ":LINE" of the file in which an exception arose, "" where none of its lines is to blame."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == path.resolve():
        return f":{error.lineno}"
    lines = [
        f.lineno for f in traceback.extract_tb(error.__traceback__)
        if Path(f.filename).resolve() == path.resolve()
    ]
    return f":{lines[-1]}" if lines else ""


def at_line(error: UserError, path: Path) -> UserError:
    """Return a mistake with the line of the user's file that made it in front, unless it names one itself."""
    where = _where(error, path)
    named = str(error).startswith((f"{path}:", f"{path.resolve()}:"))
    return type(error)(f"{path}{where}: {error}") if where and not named else error


def run_script(path: Path, arguments: Sequence[str]) -> int:
    """Run a Python script as `python SCRIPT arguments` would, dsl.cuda in the place of numba.cuda.

    Return its exit status.
    An exception of the script's own is printed with the script's part of the traceback, and the status is 1;
    a UserError goes on up with the script's line in front, and a script that is no Python is a BadOption.
    """
    _check_file(path)
    from dsl import cuda
    from dsl.programs.standin import numba_cuda

    argv, folder = sys.argv, str(path.resolve().parent)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, folder)
    try:
        with numba_cuda(cuda):
            runpy.run_path(str(path), run_name="__main__")
        return 0
    except SystemExit as leave:
        return _status(leave.code)
    except UserError as error:
        raise at_line(error, path) from error
    except BrokenPipeError:  # the reader of stdout went away
        raise
    except Exception as error:
        if isinstance(error, SyntaxError) and error.filename == str(path):
            raise BadOption(f"{path}{_where(error, path)}: {_said(error)}") from error
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
