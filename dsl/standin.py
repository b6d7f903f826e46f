"""Put dsl.cuda in the place of numba.cuda for as long as a program written for numba.cuda runs.

`from numba import cuda`, `import numba.cuda as cuda` and `from numba.cuda import jit` all give this project's
surface; the rest of numba (float32, types, njit) stays what it is. Everything is put back afterwards. What it
leaves out: numba.cuda's submodules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from gpusim.errors import UnsupportedFeature

PACKAGE, ATTRIBUTE = "numba", "cuda"
NAME = f"{PACKAGE}.{ATTRIBUTE}"
_ABSENT = object()


def _is_cuda(name: str) -> bool:
    return name == NAME or name.startswith(NAME + ".")


@contextmanager
def numba_cuda(cuda: ModuleType) -> Iterator[None]:
    """Make `cuda` what `numba.cuda` names in the body of a with statement.

    Raise UnsupportedFeature for a submodule it lacks.
    """
    import numba

    saved = {name: module for name, module in sys.modules.items() if _is_cuda(name)}
    attribute = vars(numba).get(ATTRIBUTE, _ABSENT)
    for name in saved:
        del sys.modules[name]
    sys.modules[NAME] = cuda
    setattr(numba, ATTRIBUTE, cuda)
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not _is_cuda(error.name):
            raise
        raise UnsupportedFeature(f"the program imports {error.name}, which the simulated numba.cuda does not "
                                 "have") from error
    finally:
        for name in [n for n in sys.modules if _is_cuda(n)]:
            del sys.modules[name]
        sys.modules.update(saved)
        if attribute is _ABSENT:
            delattr(numba, ATTRIBUTE)
        else:
            setattr(numba, ATTRIBUTE, attribute)
