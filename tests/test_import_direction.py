"""Imports point one way: cli -> visualize, kernels_*, dsl, gpusim; kernels_* -> dsl, gpusim; dsl -> gpusim.

So do those between the parts of dsl: each knows only parts that stand below it in DSL_MAY_IMPORT.

The walk reads the source (ast); nothing is imported. Imports between the project's packages count wherever
they stand, also inside a function; imports of other packages count where they run at import time.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = {"gpusim", "dsl", "kernels_sim", "kernels_real", "visualize", "cli"}

# Who may know whom. kernels_sim and kernels_real do not know each other: cli.py joins them by name.
MAY_IMPORT = {
    "gpusim": {"gpusim"},
    "dsl": {"dsl", "gpusim"},
    "kernels_sim": {"kernels_sim", "dsl", "gpusim"},
    "kernels_real": {"kernels_real", "dsl", "gpusim"},
    "visualize": {"visualize", "gpusim"},
    "cli": PROJECT,
}

# What loads with `import <package>`. rich and jinja2 are for people's eyes: reports and the command line.
THIRD_PARTY = {
    "gpusim": {"numpy", "numba", "ml_dtypes"},
    "dsl": {"numpy", "numba", "llvmlite", "networkx", "ml_dtypes"},
    "kernels_sim": {"numpy", "ml_dtypes"},
    "kernels_real": {"numpy", "ml_dtypes"},
    "visualize": {"numpy", "matplotlib", "networkx", "markupsafe"},
    "cli": {"click", "rich", "numpy"},
}
HEAVY = {"torch", "triton", "numba.cuda", "matplotlib"}
WITHOUT_HEAVY = {"gpusim", "dsl", "kernels_sim", "cli"}
# Files of Triton kernels are nothing without it; kernels_real imports them when they are asked for.
IN_FOLDER = {"kernels_real/triton_kernels/": {"torch", "triton"}}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

# Which part of dsl may know which. A part knows only parts below it, so there is no circle.
DSL_MAY_IMPORT: dict[str, set[str]] = {
    "programs": {"cuda", "host", "semantics", "warpir"},
    "ptx": {"intrinsics"},
    "cuda": {"host", "intrinsics", "syntax", "types"},
    "host": {
        "engine", "frontend", "intrinsics", "interpreter", "oracle", "passes", "semantics", "types", "warpir",
    },
    "engine": {"codegen", "llvm", "passes", "semantics", "warpir"},
    "codegen": {"llvm", "passes", "semantics", "types", "warpir"},
    "llvm": {"semantics", "warpir"},
    "interpreter": {"passes", "semantics", "types", "warpir"},
    "oracle": {"intrinsics", "lowering", "semantics", "types", "warpir"},
    "frontend": {"intrinsics", "lowering", "passes", "syntax", "types", "warpir"},
    "intrinsics": {"lowering", "semantics", "types", "warpir"},
    "lowering": {"syntax", "types", "warpir"},
    "syntax": set(),
    "passes": {"warpir"},
    "semantics": {"warpir"},
    "types": {"warpir"},
    "warpir": set(),
}  # fmt: skip


class Import(NamedTuple):
    """Hold one imported name, its line, and whether it runs when its file is imported."""

    name: str
    line: int
    at_import: bool


def is_type_checking(node: ast.AST) -> bool:
    """Say whether a node is `if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def names(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """Yield the dotted names that one import statement may bind or load."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = ".".join(filter(None, (package if node.level else "", node.module)))
    yield base
    yield from (f"{base}.{alias.name}" for alias in node.names)


def imports(tree: ast.AST, package: str, at_import: bool = True) -> Iterator[Import]:
    """Yield every import below a node."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (Import(name, node.lineno, at_import) for name in names(node, package))
        later = isinstance(node, FUNCTIONS) or is_type_checking(node)
        yield from imports(node, package, at_import and not later)


def under(name: str, packages: set[str]) -> bool:
    """Say whether a dotted name is one of the packages or lies in one."""
    return any(name == p or name.startswith(p + ".") for p in packages)


def allowed_third_party(package: str, path: str) -> set[str]:
    """Return what a file may load at import time beside the standard library and the project."""
    extra = {"rich", "jinja2"} if package == "gpusim" and Path(path).name.startswith("report") else set()
    own = (names for folder, names in IN_FOLDER.items() if path.startswith(folder))
    return THIRD_PARTY[package].union(extra, *own)


def broken_rules(source: str, package: str, path: str) -> list[str]:
    """List what one file imports against the rules."""
    found = []
    for name, line, at_import in imports(ast.parse(source), package):
        top = name.split(".")[0]
        if top in PROJECT:
            wrong = top not in MAY_IMPORT[package]
        elif top in sys.stdlib_module_names or not at_import:
            wrong = False
        else:
            heavy = package in WITHOUT_HEAVY and under(name, HEAVY)
            wrong = heavy or top not in allowed_third_party(package, path)
        if wrong:
            found.append(f"{path}:{line} imports {name}")
    return found


def test_only_the_seam_of_pictures_names_a_module_above_gpusim_to_load_it() -> None:
    found = [f.name for f in sorted((ROOT / "gpusim").glob("*.py")) if "import_module" in f.read_text()]
    assert found == ["__init__.py", "pictures.py"]
    from gpusim import PLACES, pictures

    assert all(place.startswith("gpusim.") for place in PLACES.values())
    assert pictures.DRAWN_BY.partition(".")[0] == "visualize"


def part_of(name: str) -> str | None:
    """Return the part of dsl that a dotted name is or lies in, None for other names and for dsl itself."""
    top, _, rest = name.partition(".")
    return rest.partition(".")[0] if top == "dsl" and rest else None


def broken_dsl_rules(source: str, part: str, path: str) -> list[str]:
    """List what one file of a part of dsl imports from parts that it may not know."""
    may = {None, part, *DSL_MAY_IMPORT[part]}
    found = imports(ast.parse(source), f"dsl.{part}")
    return [f"{path}:{line} imports {name}" for name, line, _ in found if part_of(name) not in may]


def files() -> list[tuple[str, Path]]:
    """List (package, file) for every source file under the rules."""
    found = [(p, f) for p in sorted(PROJECT - {"cli"}) for f in sorted((ROOT / p).rglob("*.py"))]
    return [*found, *(("cli", f) for f in [ROOT / "cli.py"] if f.exists())]


def test_every_package_imports_only_what_lies_below_it() -> None:
    assert len(files()) > 10
    found = [broken_rules(f.read_text(), package, str(f.relative_to(ROOT))) for package, f in files()]
    assert [rule for rules in found for rule in rules] == []


def test_every_part_of_dsl_imports_only_parts_that_it_may_know() -> None:
    paths = [p.relative_to(ROOT) for p in sorted((ROOT / "dsl").rglob("*.py"))]
    parts = {p: p.parts[1].removesuffix(".py") for p in paths if p.parts[1] != "__init__.py"}
    assert set(parts.values()) == set(DSL_MAY_IMPORT)
    found = [broken_dsl_rules((ROOT / p).read_text(), part, str(p)) for p, part in parts.items()]
    assert [rule for rules in found for rule in rules] == []


def test_a_part_of_dsl_knows_only_parts_below_it() -> None:
    order = list(DSL_MAY_IMPORT)
    for above, part in enumerate(order):
        assert DSL_MAY_IMPORT[part] <= set(order[above + 1 :]), part


@pytest.mark.parametrize(
    ("part", "source", "found"),
    [
        ("warpir", "from dsl.types import ArgType", ["dsl.types", "dsl.types.ArgType"]),
        ("oracle", "def f():\n    from dsl import cuda", ["dsl.cuda"]),
        ("engine", "import dsl.host.launch", ["dsl.host.launch"]),
        ("lowering", "if TYPE_CHECKING:\n    from dsl.frontend import calls",
         ["dsl.frontend", "dsl.frontend.calls"]),
        ("lowering", "from dsl.syntax.source import Source\nfrom dsl import lowering\nimport gpusim", []),
        ("host", "def f():\n    from dsl.oracle import run as oracle", []),
    ],
)  # fmt: skip
def test_an_import_of_a_part_above_is_found(part: str, source: str, found: list[str]) -> None:
    lines = source[: source.index("from" if "from" in source else "import")].count("\n") + 1
    assert broken_dsl_rules(source, part, "x.py") == [f"x.py:{lines} imports {name}" for name in found]


@pytest.mark.parametrize(
    ("package", "source", "found"),
    [
        ("gpusim", "import dsl.warpir.ir", "dsl.warpir.ir"),
        ("gpusim", "def f():\n    from dsl.warpir import ir", "dsl.warpir"),
        ("dsl", "import kernels_sim", "kernels_sim"),
        ("kernels_sim", "from kernels_real import runner", "kernels_real"),
        ("visualize", "from kernels_sim import flash_forward", "kernels_sim"),
        ("gpusim", "import torch", "torch"),
        ("gpusim", "import llvmlite.binding", "llvmlite.binding"),
        ("gpusim", "import rich", "rich"),
        ("dsl", "from numba import cuda", "numba.cuda"),
        ("dsl", "import numba.cuda", "numba.cuda"),
        ("dsl", "class A:\n    import triton", "triton"),
        ("cli", "try:\n    import matplotlib.pyplot\nexcept ImportError:\n    pass", "matplotlib.pyplot"),
    ],
)
def test_an_import_against_the_rules_is_found(package: str, source: str, found: str) -> None:
    line = source[: source.index("import")].count("\n") + 1
    assert f"x.py:{line} imports {found}" in broken_rules(source, package, "x.py")


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("dsl", "from gpusim import trace"),
        ("dsl", "from . import ir\nfrom .types import arg_type"),
        ("dsl", "def f():\n    from numba import cuda"),
        ("dsl", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("gpusim", "import numba\nfrom numba import njit, types"),
        ("visualize", "import matplotlib"),
        ("cli", "import click\nimport kernels_sim, visualize"),
    ],
)
def test_an_import_within_the_rules_is_not_reported(package: str, source: str) -> None:
    assert broken_rules(source, package, "x.py") == []


def test_only_the_triton_kernels_of_kernels_real_may_load_triton() -> None:
    source = "import triton.language as tl"
    assert broken_rules(source, "kernels_real", "kernels_real/triton_kernels/softmax_merge.py") == []
    for path in ("kernels_real/__init__.py", "kernels_real/metal_kernels/triton.py"):
        assert broken_rules(source, "kernels_real", path) == [f"{path}:1 imports triton.language"]


@pytest.mark.parametrize("name", ["rich", "jinja2"])
def test_only_a_report_of_gpusim_may_load_what_is_for_people(name: str) -> None:
    assert broken_rules(f"import {name}", "gpusim", "gpusim/report.py") == []
    assert broken_rules(f"import {name}", "gpusim", "gpusim/metrics.py") == [
        f"gpusim/metrics.py:1 imports {name}"]
