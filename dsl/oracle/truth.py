"""What `is True` and `is False` mean in the Python oracle: a comparison of truth, as numba compiles it.

What it models: `is` and `is not` beside True and False. Python would compare objects there, and the oracle's
booleans (dsl/oracle/numbers.py) are none of Python's two. What it leaves out: `is` beside anything else, and
functions without a source. Checked by no ncu metric.
"""

from __future__ import annotations

import ast
import dis
import linecache
from types import CodeType, FunctionType
from typing import Any


class _Compared(ast.NodeTransformer):
    """Make `x is True` into `x == True`, and `is not` into `!=`."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Change the operators that stand beside True or False."""
        self.generic_visit(node)
        operands = [node.left, *node.comparators]
        for k, op in enumerate(node.ops):
            if isinstance(op, (ast.Is, ast.IsNot)) and any(map(_is_truth, operands[k : k + 2])):
                node.ops[k] = ast.Eq() if isinstance(op, ast.Is) else ast.NotEq()
        return node


def _is_truth(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def comparing_truth(function: FunctionType) -> CodeType:
    """Return a function's code with `is` beside True and False made a comparison; lines and columns stay."""
    code = function.__code__
    if all(instruction.opname != "IS_OP" for instruction in dis.get_instructions(code)):
        return code
    node = _definition(code)
    if node is None:
        return code
    arguments = ", ".join(code.co_freevars)
    module = ast.parse(f"def around({arguments}): pass")
    around: Any = module.body[0]
    around.body = [_Compared().visit(node)]
    found: Any = compile(module, code.co_filename, "exec", dont_inherit=True)
    for name in ("around", code.co_name):
        found = next(c for c in found.co_consts if isinstance(c, CodeType) and c.co_name == name)
    return found if found.co_freevars == code.co_freevars else code


def _definition(code: CodeType) -> ast.FunctionDef | None:
    """Return the syntax tree of the function that a code object was made from, None without a source."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None
