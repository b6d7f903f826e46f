"""What attention kernels say of themselves alike: visible pairs, elements moved and their ideal, FLOPs.

Everything is over all heads and all launches of a problem. What it leaves out: tiles, which are each
algorithm's own. Checked by l1tex__t_requests_* (elements) and smsp__sass_thread_inst_executed_op_* (FLOPs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpusim.launch import Fact
from kernels_sim.attention import Shape, attention_flops, visible_pairs
from kernels_sim.formulas import ELEMENT_BYTES

AT_DRAM = ("hierarchy.dram_read_bytes", "hierarchy.dram_write_bytes", "hierarchy.dirty_bytes")
"""What DRAM must move for a problem with cold caches: read, written back, and still to be written back."""
FLOPS = {"arithmetic.ffma": 2, "arithmetic.fmul": 1, "arithmetic.fadd": 1}
"""FLOPs of one thread instruction."""
MMA_FLOPS = 4096
"""FLOPs of one mma.sync m16n8k16."""
IDEAL, ALL_FLOPS = "Ideal At DRAM", "FLOPs, All"


def pair_fact(shape: Shape) -> Fact:
    """Count the (query, key) pairs in which the query sees the key."""
    whole = of_heads("N^2" if shape.N == shape.Nk else "N Nk", shape)
    seen = "keys of the row's window" if shape.window else "keys up to the row's place"
    formula = seen if shape.causal or shape.window else whole
    return Fact("Pairs Visible", visible_pairs(shape) * shape.heads, "pair", formula)


def element_facts(
    ideal: int,
    ideal_formula: str,
    moved: int,
    moved_formula: str,
    forms: Sequence[dict[str, int]],
    ideal_bytes: int | None = None,
    moved_bytes: int | None = None,
) -> tuple[Fact, ...]:
    """Say how many elements have to move, and how many pass between SM and L1.

    forms: the closed forms of the launches. The ideal is held against DRAM where all of them say that each
    element is moved there once. ideal_bytes: of elements that are not all of 4 bytes; a fact of its own, as
    is moved_bytes where lanes access several elements.
    """
    follows = all(path in form for form in forms for path in AT_DRAM)
    at_dram = dict.fromkeys(AT_DRAM, 1) if follows else {}
    at_l1 = dict.fromkeys(("global_load.lanes", "global_store.lanes"), 1)
    asked = Fact("Moved At SM-L1", moved, "element", moved_formula, at_l1, base=IDEAL)
    if ideal_bytes is None:
        return Fact(IDEAL, ideal, "element", ideal_formula, at_dram, ELEMENT_BYTES), asked
    in_bytes = Fact("Ideal Bytes At DRAM", ideal_bytes, "byte", "the same in bytes", at_dram)
    found = Fact(IDEAL, ideal, "element", ideal_formula), in_bytes, asked
    if moved_bytes is None:
        return found
    at_l1 = dict.fromkeys(("global_load.bytes", "global_store.bytes"), 1)
    in_bytes = Fact("Bytes Moved At SM-L1", moved_bytes, "byte", "the same in bytes", at_l1)
    return *found[:2], replace(asked, counters={}), in_bytes


def masked_flops(shape: Shape, each: str) -> tuple[Fact, ...]:
    """Say what the products of a masked problem need, and the usual estimate of a causal square: half of all.

    More is executed than is visible, as strips or tiles are computed whole; half is less, as the diagonal is
    visible. each: the FLOPs of a pair in words.
    """
    needed = Fact("FLOPs, Pairs Visible", attention_flops(shape), "flop", f"{each} pairs visible")
    if shape.window or shape.N != shape.Nk or shape.q_start or shape.dv != shape.d:
        return (needed,)
    half = 2 * shape.heads * shape.N**2 * shape.d
    return needed, Fact("FLOPs, Half Of N^2", half, "flop", of_heads("4 N^2 d / 2", shape))


def flop_facts(
    products: int, formula: str, forms: Sequence[dict[str, int]], tensor: str = ""
) -> tuple[Fact, Fact, Fact]:
    """Say how many FLOPs the products execute, the rest, and all together.

    tensor: the counter of the mma.sync m16n8k16 that execute the products; without one, FFMA do.
    """
    factors = {**FLOPS, tensor: MMA_FLOPS} if tensor else FLOPS
    total = sum(times * form[path] for form in forms for path, times in factors.items())
    words = "2 FFMA + FMUL + FADD" + (f" + {MMA_FLOPS:,} mma" if tensor else "")
    return (
        Fact("FLOPs, Products", products, "flop", formula, {tensor: MMA_FLOPS} if tensor else {}),
        Fact("FLOPs, Rest", total - products, "flop", "exp, division, rescaling", base=ALL_FLOPS),
        Fact(ALL_FLOPS, total, "flop", words, dict(factors)),
    )


def of_heads(formula: str, shape: Shape) -> str:
    """Return the formula of one head for all of them; H is heads times batch."""
    return formula if shape.heads == 1 else f"H ({formula})"
