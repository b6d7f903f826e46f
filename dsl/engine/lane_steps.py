"""How far apart the lanes of a warp are in each memory access of a source line, as a launch has it.

What it models: the byte step between neighbouring lanes, from the pattern of the address in
dsl/passes/shapes.py. A stride that only the launch knows (of an array, or an integer argument) is put in as a
constant first, and sums and products of such constants are worked out. What it leaves out: constant memory;
addresses that depend on data, and patterns that are neither one step nor equal runs of one step, have no
step. Checked by no metric: it explains counts (gpusim/line_reasons.py) and changes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import overload

from dsl.engine.run import Compiled
from dsl.engine.tally import Tally
from dsl.passes.intervals import Intervals, Limits
from dsl.passes.shapes import LANES, Shapes
from dsl.passes.ssa import Ssa, written
from dsl.warpir import ir
from gpusim.counters import ConstantCounts, SpaceCounts
from gpusim.launch import LineAccess

_WIDTH = {"s32": 31, "u32": 32, "s64": 63, "u64": 64}
"""Bits of an integer's size; those of a signed one without its sign."""
_FOLDED: dict[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "neg": lambda a: -a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
}


class LineAccesses(Sequence[LineAccess]):
    """Hold what `line_accesses` gives, worked out when it is first looked at: few launches show it, and it
    takes as long as an analysis of the kernel.
    """

    def __init__(self, tally: Tally, params: Mapping[str, int | float]) -> None:
        self._of = tally, dict(params)

    @cached_property
    def _found(self) -> tuple[LineAccess, ...]:
        return line_accesses(*self._of)

    @overload
    def __getitem__(self, index: int) -> LineAccess: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LineAccess]: ...
    def __getitem__(self, index: int | slice) -> LineAccess | Sequence[LineAccess]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._found == tuple(other)

    def __hash__(self) -> int:
        return hash(self._found)

    def __reduce__(self) -> tuple[type, tuple[tuple[LineAccess, ...]]]:
        """Become a tuple where a launch is copied or pickled: the kernel's machine code cannot be."""
        return tuple, (self._found,)


def line_accesses(tally: Tally, params: Mapping[str, int | float]) -> tuple[LineAccess, ...]:
    """Return what the accesses of each line to each array did, in the order of the kernel's instructions.

    params: the launch's parameters by name, as dsl.host.device.Placed holds them. Instructions that agree in
    line, kind, array, element and step (an unrolled loop's) are one access.
    """
    compiled = tally.compiled
    arrays: list[ir.SharedArray | ir.LocalArray] = [*compiled.fn.shared, *compiled.fn.local]
    rows = {a.name: _row_bytes(a) for a in arrays}
    merged: dict[LineAccess, LineAccess] = {}
    for site in tally.by_site():
        counts = site.counts
        if counts.requests == 0 or isinstance(counts, ConstantCounts):
            continue
        taken = counts.sectors if isinstance(counts, SpaceCounts) else counts.wavefronts
        ideal = None if isinstance(counts, SpaceCounts) else counts.ideal_wavefronts
        access = LineAccess(
            *site.loc, site.kind, site.array, site.bytes_per_lane, counts.requests, counts.lanes, taken,
            ideal, row_bytes=rows.get(site.array, 0),
        )  # fmt: skip
        step = _step(compiled, site.addr, params, access.wasted > 0)
        _merge(merged, replace(access, step_bytes=step[0], run_lanes=step[1], jump_bytes=step[2]))
    return tuple(merged.values())


def _row_bytes(array: ir.SharedArray | ir.LocalArray) -> int:
    """Return the bytes of the last dimension of an array of two dimensions or more, else 0."""
    return array.shape[-1] * array.element_bytes if len(array.shape) > 1 else 0


def _merge(merged: dict[LineAccess, LineAccess], access: LineAccess) -> None:
    """Add an access to the one that differs in counts alone."""
    key = replace(access, requests=0, lanes=0, taken=0, ideal_wavefronts=None)
    merged[key] = merged[key].with_counts_of(access) if key in merged else access


def _step(
    compiled: Compiled, addr: ir.Operand, params: Mapping[str, int | float], matters: bool
) -> tuple[int | None, int, int]:
    """Return (step, run, jump) of an address; the launch's numbers are asked only where it matters."""
    pattern = compiled.shapes.of(addr).pattern
    if pattern is None and matters and isinstance(addr, ir.Reg):
        numbers = tuple(sorted((k, v) for k, v in params.items() if isinstance(v, int) and _is_fixed(k)))
        pattern = _resolved(compiled, numbers).get(addr.index)
    return runs(pattern) if pattern is not None else (None, LANES, 0)


def _is_fixed(name: str) -> bool:
    """Tell whether a parameter belongs to the launch's shape; where an array lies does not."""
    return not name.endswith(".base")


def runs(pattern: tuple[int, ...]) -> tuple[int | None, int, int]:
    """Describe 32 offsets as runs: (bytes from lane to lane in a run, lanes of a run, bytes from run to run).

    The step is None where the offsets are no equal runs.
    """
    gaps = [b - a for a, b in zip(pattern, pattern[1:], strict=False)]
    step = gaps[0]
    run = next((k + 1 for k, gap in enumerate(gaps) if gap != step), LANES)
    jump = pattern[run] - pattern[0] if run < LANES else 0
    made = tuple(pattern[0] + lane // run * jump + lane % run * step for lane in range(LANES))
    return (step, run, jump) if made == pattern else (None, LANES, 0)


@lru_cache(maxsize=64)
def _resolved(compiled: Compiled, numbers: tuple[tuple[str, int], ...]) -> dict[int, tuple[int, ...]]:
    """Map registers to the pattern they have with these numbers in place of the parameters."""
    ssa = _with_numbers(compiled.ssa, dict(numbers))
    limits = Limits(compiled.key.block, compiled.key.nonnegative)
    shapes = Shapes(ssa, Intervals(ssa, limits))
    return {index: shape.pattern for index, shape in shapes.shape.items() if shape.pattern is not None}


def _with_numbers(ssa: Ssa, numbers: Mapping[str, int]) -> Ssa:
    """Return a copy of a function that uses numbers for known parameters and what is computed from them.

    Definitions stay, so that every register of the first function is one of the copy.
    """
    known: dict[int, ir.Imm] = {}

    def read(operand: ir.Operand) -> ir.Operand:
        return known.get(operand.index, operand) if isinstance(operand, ir.Reg) else operand

    blocks = []
    for block in ssa.fn.blocks:  # a definition stands before its uses, but for phis at a loop's top
        instrs = [_note(ir.with_sources(instr, read), numbers, known) for instr in block.instrs]
        end = ir.with_sources(block.terminator, read) if block.terminator is not None else None
        blocks.append(replace(block, instrs=instrs, terminator=end))
    phis = [
        [replace(phi, incoming={b: read(o) for b, o in phi.incoming.items()}) for phi in here]
        for here in ssa.phis
    ]
    copy = replace(ssa, fn=replace(ssa.fn, blocks=blocks), phis=phis, defs={})
    for b, block in enumerate(blocks):
        for definition in (*phis[b], *block.instrs):
            for reg in written(definition):
                copy.defs[reg.index] = b, definition
    return copy


def _note(instr: ir.Instr, numbers: Mapping[str, int], known: dict[int, ir.Imm]) -> ir.Instr:
    """Remember the number that an instruction gives, if it gives one; return the instruction."""
    value: int | None = None
    match instr:
        case ir.LdParam(name=name):
            value = numbers.get(name)
        case ir.Alu(op=op, srcs=srcs) if op in _FOLDED:
            value = _folded(op, srcs)
        case ir.Cvt(src=ir.Imm(value=int(number)), from_type=source) if source in _WIDTH:
            value = number
    for reg in ir.destinations(instr):
        if value is not None and _fits(value, reg.type):
            known[reg.index] = ir.Imm(value)
    return instr


def _folded(op: str, operands: tuple[ir.Operand, ...]) -> int | None:
    """Return the result of an operation on integer constants; None where an operand is none."""
    values = [o.value for o in operands if isinstance(o, ir.Imm) and isinstance(o.value, int)]
    return int(_FOLDED[op](*values)) if len(values) == len(operands) else None


def _fits(value: int, kind: str) -> bool:
    """Tell whether an integer type holds a value, so that the kernel computes the same."""
    if kind not in _WIDTH:
        return False
    least = -(2 ** _WIDTH[kind]) if kind[0] == "s" else 0
    return least <= value < 2 ** _WIDTH[kind]
