"""Find the syntax tree of a kernel in its file, with its real line numbers.

It models nothing of the card. The whole file is parsed and the definition found by its first line, so
comments, decorators and indentation need no care. What it leaves out: functions with no source text (typed at
a prompt, exec).
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType

from dsl.syntax.folding import Folder
from dsl.syntax.webs import Webs, split
from gpusim.errors import UnsupportedFeature


@dataclass(frozen=True)
class Source:
    """Hold one function's definition: its file, its tree, and its variables split into webs."""

    file: str
    tree: ast.FunctionDef
    webs: Webs


_SOURCES: dict[tuple[CodeType, str], Source] = {}
"""What was found once stays, as the file may be edited meanwhile; equal code in two files is two."""


def find(func: FunctionType) -> Source:
    """Return the source of a Python function.

    Raise UnsupportedFeature where there is none or it is no plain `def`.
    """
    key = (func.__code__, func.__code__.co_filename)
    if key not in _SOURCES:
        _SOURCES[key] = _read(func)
    return _SOURCES[key]


def _read(func: FunctionType) -> Source:
    code = func.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, func.__globals__))
    if not text:
        raise UnsupportedFeature(
            f"{func.__name__}: its source text is not available ({code.co_filename}); "
            "put the kernel in a .py file"
        )
    if code.co_name == "<lambda>":
        raise UnsupportedFeature(
            f"{code.co_filename}:{code.co_firstlineno}: a lambda is not in the kernel language; write a def"
        )
    return _definition(text, code.co_filename, code.co_name, code.co_firstlineno)


@lru_cache(maxsize=256)
def _definition(text: str, file: str, name: str, first_line: int) -> Source:
    for node in _functions(text, file):
        if node.name == name and _first_line(node) == first_line:
            if isinstance(node, ast.AsyncFunctionDef):
                raise UnsupportedFeature(
                    f"{file}:{node.lineno}: async def is not in the kernel language; write a plain def"
                )
            Folder().visit(node)
            return Source(file, node, split(node))
    raise UnsupportedFeature(
        f"{file}:{first_line}: the source of {name} is not there; has the file changed since it was imported?"
    )


@lru_cache(maxsize=32)
def _functions(text: str, file: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions of a file, those inside others too."""
    nodes = ast.walk(ast.parse(text, file))
    return [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])
