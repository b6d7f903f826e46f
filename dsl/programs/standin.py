"""Put dsl.cuda in the place of numba.cuda for as long as a program written for numba.cuda runs.

`from numba import cuda`, `import numba.cuda as cuda` and `from numba.cuda import jit` all give this project's
surface; the rest of numba (float32, types, njit) stays what it is, and is what `numba.cuda.types` names.
Everything is put back afterwards. What it leaves out: numba.cuda's other submodules.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from dsl.host.missing import MissingName, missing
from gpusim.errors import UnsupportedFeature

PACKAGE, ATTRIBUTE = "numba", "cuda"
NAME = f"{PACKAGE}.{ATTRIBUTE}"
_ABSENT = object()


def _is_cuda(name: str) -> bool:
    return name == NAME or name.startswith(NAME + ".")


def _missing_import(error: ImportError, cuda: ModuleType) -> UnsupportedFeature | None:
    """Return the mistake of importing something that the stand-in lacks; None for any other import."""
    if isinstance(error, ModuleNotFoundError):
        if error.name is None or not _is_cuda(error.name):
            return None
        said = f"the program imports {error.name}, which is not in the simulated numba.cuda"
        return UnsupportedFeature(said)
    name = re.match(r"cannot import name '(\w+)'", str(error))
    if name is None or error.name not in (NAME, cuda.__name__):
        return None
    reason = getattr(cuda, "__getattr__", missing)
    try:
        reason(name[1])
    except MissingName as said:
        return said
    return missing(name[1])


@contextmanager
def numba_cuda(cuda: ModuleType) -> Iterator[None]:
    """Make `cuda` what `numba.cuda` names in the body of a with statement.

    Raise UnsupportedFeature for a submodule or a name that the body imports and it lacks.
    """
    import numba

    saved = {name: module for name, module in sys.modules.items() if _is_cuda(name)}
    attribute = vars(numba).get(ATTRIBUTE, _ABSENT)
    for name in saved:
        del sys.modules[name]
    sys.modules[NAME] = cuda
    sys.modules[f"{NAME}.types"] = numba.types
    setattr(numba, ATTRIBUTE, cuda)
    try:
        yield
    except ImportError as error:
        lacking = _missing_import(error, cuda)
        if lacking is None:
            raise
        raise lacking.with_traceback(error.__traceback__) from error
    finally:
        for name in [n for n in sys.modules if _is_cuda(n)]:
            del sys.modules[name]
        sys.modules.update(saved)
        if attribute is _ABSENT:
            delattr(numba, ATTRIBUTE)
        else:
            setattr(numba, ATTRIBUTE, attribute)
