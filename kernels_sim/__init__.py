"""The shipped kernels, found by name.

A kernel file registers one `SPEC` or several `SPECS`. Its names are read from its text, so that a question
about one kernel imports one file; files whose names begin with an underscore, problem.py and run.py hold no
kernels.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.errors import UnknownName

if TYPE_CHECKING:
    from kernels_sim.problem import KernelSpec

FOLDER = Path(__file__).parent
NOT_KERNELS = {"problem", "run"}
REGISTERS = re.compile(r"^SPECS?\b[^=\n]*=", re.MULTILINE)
NAME = re.compile(r"""\bKernelSpec\(\s*(?:name\s*=\s*)?["'](\w+)["']""")


@cache
def modules() -> dict[str, tuple[str, ...]]:
    """Map each module that registers kernels to the names found in its text (none where they are computed).
    """
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem.startswith("_") or path.stem in NOT_KERNELS:
            continue
        text = path.read_text(encoding="utf-8")
        if REGISTERS.search(text):
            found[path.stem] = tuple(NAME.findall(text))
    return found


def specs_of(module: str) -> tuple[KernelSpec, ...]:
    """Import one module of kernels and return what it registers."""
    loaded = importlib.import_module(f"{__name__}.{module}")
    one = (loaded.SPEC,) if hasattr(loaded, "SPEC") else ()
    return one + tuple(getattr(loaded, "SPECS", ()))


def names() -> list[str]:
    """List the names of all kernels, sorted, importing only the files whose names are computed."""
    found = (known or tuple(s.name for s in specs_of(module)) for module, known in modules().items())
    return sorted(name for known in found for name in known)


def specs() -> list[KernelSpec]:
    """Import every kernel and list them by name."""
    return sorted((spec for module in modules() for spec in specs_of(module)), key=lambda spec: spec.name)


def all_specs() -> tuple[list[KernelSpec], dict[str, Exception]]:
    """Return the kernels by name, and module -> error for files that do not load (a kernel one is writing).
    """
    found: list[KernelSpec] = []
    broken: dict[str, Exception] = {}
    for module in modules():
        try:
            found += specs_of(module)
        except Exception as error:  # noqa: PERF203 - one bad file must not hide the others
            broken[module] = error
    return sorted(found, key=lambda spec: spec.name), broken


def find(name: str) -> KernelSpec:
    """Return the kernel of a name; raise UnknownName with near names."""
    for module in _likely(name):
        for spec in specs_of(module):
            if spec.name == name:
                return spec
    near = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
    known = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names())}."
    raise UnknownName(f"unknown kernel {name!r}; {known} One's own kernel is named FILE.py:kernel")


def _likely(name: str) -> Iterator[str]:
    """Yield the modules whose text names the kernel, then those whose names are computed."""
    yield from (m for m, found in modules().items() if name in found)
    yield from (m for m, found in modules().items() if not found)
