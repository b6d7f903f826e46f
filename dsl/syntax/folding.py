"""Work out arithmetic between numbers of the source, as Python does before numba sees the code.

It models nothing of the card. `9223372036854775807 + 1` is the constant 2^63, which is a uint64, and no sum
of two int64 that wraps; `2 ** -1` is 0.5. What it leaves out: names, also those of constants, and what Python
leaves to the program: divisions by zero and numbers of more than 128 bits.
"""

from __future__ import annotations

import ast

_GROWS = (ast.Pow, ast.LShift, ast.Mult)
MOST_BITS = 128
"""CPython's limit of an integer that it works out."""


class Folder(ast.NodeTransformer):
    """Put numbers in the place of arithmetic between numbers; places in the source stay."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Return the number, or the node where a side is none."""
        self.generic_visit(node)
        if not (_is_number(node.left) and _is_number(node.right)):
            return node
        x, y = node.left.value, node.right.value  # type: ignore[attr-defined]
        if isinstance(node.op, _GROWS) and _bits(node.op, x, y) > MOST_BITS:
            return node
        return _folded(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Return the number, or the node where its operand is none."""
        self.generic_visit(node)
        return _folded(node) if _is_number(node.operand) and not isinstance(node.op, ast.Not) else node


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _bits(op: ast.operator, x: float, y: float) -> float:
    """Return how many bits an integer result may have; 0 for other results."""
    if not (isinstance(x, int) and isinstance(y, int)) or y < 0:
        return 0
    if isinstance(op, ast.Mult):
        return x.bit_length() + y.bit_length()
    return x.bit_length() * y if isinstance(op, ast.Pow) else x.bit_length() + y


def _folded(node: ast.expr) -> ast.expr:
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {})
    except (ArithmeticError, ValueError, TypeError):  # 1 / 0, 1 << -1, 1.5 & 1: the program's to meet
        return node
    return ast.copy_location(ast.Constant(value), node) if isinstance(value, (int, float)) else node
