"""Contract a multiplication and the addition of its product into one fma, as ptxas does by default.

What it models: inside a basic block, `add` or `sub` of a product that nobody else reads becomes `fma`; of two
products the first is taken. Signs are free (`neg` is a modifier in machine code). Measured: matmul_tile n=512
runs 134,217,728 = n**3 FFMA and no FMUL (h200 fact 11).
What it leaves out: contraction across blocks, which ptxas does not do either where the paths differ, and
products that are read twice. A `mul` with a tag ("predicated", "nocontract") is left alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dsl.warpir import ir
from dsl.warpir.ir import Alu, Imm, Instr, Operand, Reg

CONTRACTED = ("f32", "f64", "f16", "bf16")


@dataclass
class _Uses:
    """Count, over the whole function, how often each register is read and written."""

    read: Counter[Reg]
    written: Counter[Reg]


def contract(fn: ir.Function) -> ir.Function:
    """Replace single-use products in sums by fma, in place; return the function."""
    uses = _count(fn)
    for block in fn.blocks:
        block.instrs = _block(block.instrs, uses, fn)
    return fn


def _count(fn: ir.Function) -> _Uses:
    read: Counter[Reg] = Counter()
    written: Counter[Reg] = Counter()
    for block in fn.blocks:
        for instr in block.instrs:
            read.update(s for s in ir.sources(instr) if isinstance(s, Reg))
            written.update(ir.destinations(instr))
        if block.terminator is not None:
            read.update(s for s in ir.sources(block.terminator) if isinstance(s, Reg))
    return _Uses(read, written)


def _block(instrs: list[Instr], uses: _Uses, fn: ir.Function) -> list[Instr]:
    out: list[Instr | None] = []
    open_products: dict[Reg, int] = {}
    for instr in instrs:
        at = _product_of(instr, open_products)
        if at is not None and isinstance(instr, Alu):
            position = open_products.pop(_register(instr.srcs[at]))
            product, out[position] = out[position], None
            assert isinstance(product, Alu)
            out += _fuse(instr, at, product, fn)
        else:
            out.append(instr)
        _forget(open_products, out, ir.destinations(instr))
        if isinstance(instr, Alu) and _is_product(instr, uses):
            open_products[instr.dst] = len(out) - 1
    return [i for i in out if i is not None]


def _is_product(instr: Alu, uses: _Uses) -> bool:
    if not (instr.op == "mul" and instr.type in CONTRACTED and not instr.tag):
        return False
    return uses.read[instr.dst] == uses.written[instr.dst] == 1


def _product_of(instr: Instr, open_products: dict[Reg, int]) -> int | None:
    """Return which operand of a float sum is a product that may be fused: the first if both are."""
    if not (
        isinstance(instr, Alu)
        and instr.op in ("add", "sub")
        and instr.type in CONTRACTED
        and not instr.tag
    ):
        return None
    return next(
        (
            k
            for k, s in enumerate(instr.srcs)
            if s in open_products and isinstance(s, Reg) and s.type == instr.type
        ),
        None,
    )


def _forget(open_products: dict[Reg, int], out: list[Instr | None], written: tuple[Reg, ...]) -> None:
    """Close the products one of whose factors was just assigned anew."""
    stale = [
        r for r, position in open_products.items() if set(written) & set(ir.sources(_instr(out[position])))
    ]
    for r in stale:
        del open_products[r]


def _fuse(total: Alu, at: int, product: Alu, fn: ir.Function) -> list[Instr | None]:
    """Return the fma of a sum whose operand `at` is `product`, with a negation before it for a difference."""
    (x, y), other = product.srcs, total.srcs[1 - at]
    before: list[Instr | None] = []

    def negated(operand: Operand) -> Operand:
        if isinstance(operand, Imm):
            return Imm(-operand.value)
        flipped = Reg(fn.n_regs, total.type)
        fn.n_regs += 1
        before.append(Alu("neg", total.type, flipped, (operand,), total.loc))
        return flipped

    if total.op == "sub":
        x, other = (x, negated(other)) if at == 0 else (negated(x), other)
    return [*before, Alu("fma", total.type, total.dst, (x, y, other), total.loc)]


def _register(operand: Operand | None) -> Reg:
    assert isinstance(operand, Reg)
    return operand


def _instr(instr: Instr | None) -> Instr:
    assert instr is not None
    return instr
