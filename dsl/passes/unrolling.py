"""Which loops the compiler unrolls wholly: those with a constant number of turns that stay small.

What it models: NVVM at its default level. A loop is unrolled where turns times the instructions of a turn
pass no limit, or where it is first unrolled by a power of two and at most ten turns stay. The size of a turn
is counted on WarpIR with weights that fit the code NVVM 13.0 makes of numba kernels: for 22 of 24 loop bodies
they give the longest loop that is unrolled to within two turns (docs/as_compiled.md has the table). What it
leaves out: loops unrolled in part (they keep scalar loads) and peeling. Checked by
`smsp__inst_executed_op_shared_ld`, through dsl/passes/as_compiled.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from dsl.passes.ssa import Phi, Ssa, constant_trips
from dsl.warpir import ir

LIMIT = 402
"""Instructions of all turns of a loop that is unrolled wholly: 80 turns of 5, 40 of 10, 28 of 14."""
PRIVATE_LIMIT = 2415
"""The same for a loop that indexes a private array with its counter: 161 turns of 15."""
PART_LIMIT = 73
"""Instructions of the turns that are put together first: 8 of 9, 4 of 14."""
TURNS_LEFT = 10
"""Turns that may stay then: 80 = 8 x 10 turns of 9 instructions are unrolled, 88 are not."""
LOOP, WHILE, BRANCH, CHECK, ACCESS = 4, 1, 3, 2, 2
"""Instructions of a loop over a range itself (phi, addition, comparison, branch), of a while loop (whose
counter is known not to be negative, so that no index wraps), of an if, of wrapping an index (comparison,
selection) and of an access (address, load)."""
CALL = 12
"""Instructions of a function of math that WarpIR has as one operation."""
FLOAT = {"div": 4, "sqrt": 4, "fma": 2, **dict.fromkeys(ir.MATH_CALLS, CALL)}


@dataclass
class _Body:
    """Hold what the size of a loop's turn needs: its blocks, its counter, and what is known of registers.

    varying: registers that differ from turn to turn. constant: those that are numbers once the loop is
    unrolled. addresses: those made from a checked index. repeats: those that hold what an earlier one holds.
    """

    blocks: range
    counter: int
    is_while: bool = False
    varying: set[int] = field(default_factory=set)
    constant: set[int] = field(default_factory=set)
    addresses: set[int] = field(default_factory=set)
    repeats: set[int] = field(default_factory=set)


def unrolled_loops(ssa: Ssa) -> dict[int, int]:
    """Return the loops that the compiler unrolls wholly: header -> turns."""
    found: dict[int, int] = {}
    copies: dict[int, int] = {}
    for header, last in sorted(ssa.loops.items(), key=lambda span: span[1] - span[0]):
        turns = constant_trips(ssa, header)
        if turns is None:
            continue
        body = _body(ssa, header, last)
        size, copies[header] = _sizes(ssa, body, found, copies)
        limit = PRIVATE_LIMIT if _indexes_private(ssa, body) else LIMIT
        innermost = not any(header < h <= last for h in ssa.loops)
        if turns * size <= limit or (innermost and _in_two_steps(turns, size)):
            found[header] = turns
    return found


def steps(ssa: Ssa, header: int, phi: Phi) -> bool:
    """Tell whether a compiler steps the multiples of a phi at a loop's header, and does not multiply.

    It steps everything but the counter of a range, and that one where it starts at a number and goes in steps
    other than 1 to an unknown end.
    """
    found = range_of(ssa, header)
    if found is None or phi.dst.index != _counter(ssa, header):
        return True
    start, _, step = found
    return isinstance(start, ir.Imm) and step != ir.Imm(1) and constant_trips(ssa, header) is None


def range_of(ssa: Ssa, header: int) -> tuple[ir.Operand, ir.Operand, ir.Operand] | None:
    """Return start, stop and step of the range that a loop goes through; None for any other loop."""
    branch, counter = ssa.fn.blocks[header].terminator, _counter(ssa, header)
    phi = next((phi for phi in ssa.phis[header] if phi.dst.index == counter), None)
    if phi is None or ssa.fn.blocks[header].may_spin:
        return None
    start = next(value for p, value in phi.incoming.items() if p < header)
    moved = next(value for p, value in phi.incoming.items() if p >= header)
    added, compared = (_definition(ssa, operand) for operand in (moved, *ir.sources(branch)))
    if isinstance(added, ir.Alu) and added.op == "add" and isinstance(compared, ir.Setp):
        return start, compared.b, added.srcs[1]
    return None


def _definition(ssa: Ssa, operand: ir.Operand) -> ir.Instr | Phi | None:
    return ssa.defs[operand.index][1] if isinstance(operand, ir.Reg) else None


def known_in_turns(ssa: Ssa, header: int) -> set[int]:
    """Return the registers of a loop's body that are numbers in each turn once it is unrolled."""
    return _body(ssa, header, ssa.loops[header]).constant


def _in_two_steps(turns: int, size: int) -> bool:
    """Tell whether at most TURNS_LEFT turns stay after unrolling by the largest power of two that fits."""
    part = 1
    while turns % (2 * part) == 0 and 2 * part * size <= PART_LIMIT:
        part *= 2
    return part > 1 and turns // part <= TURNS_LEFT


def _body(ssa: Ssa, header: int, last: int) -> _Body:
    """Return a loop's body with what varies with its counter."""
    blocks = range(header, last + 1)
    counter = _counter(ssa, header)
    body = _Body(blocks, counter, ssa.fn.blocks[header].may_spin)
    body.constant = {counter}
    body.varying = {phi.dst.index for b in blocks for phi in ssa.phis[b]}
    body.repeats = _repeats(ssa, blocks)
    for instr in _instructions(ssa, blocks):
        written = {dst.index for dst in ir.destinations(instr)}
        sources = ir.sources(instr)
        if isinstance(instr, ir.Chk) or any(_in(s, body.addresses) for s in sources):
            body.addresses |= written
        if isinstance(instr, ir.Atom) or any(_in(s, body.varying) for s in sources):
            body.varying |= written
            if not isinstance(instr, ir.Ld | ir.Atom) and all(_fixed(s, body) for s in sources):
                body.constant |= written
    return body


def _repeats(ssa: Ssa, blocks: range) -> set[int]:
    """Return the registers whose computation, or load, is the same as one before it in these blocks."""
    first: dict[Hashable, ir.Operand] = {}
    names: dict[ir.Operand, ir.Operand] = {}
    for instr in _instructions(ssa, blocks):
        dsts = ir.destinations(instr)
        if isinstance(instr, ir.Atom) or len(dsts) != 1:
            continue
        sources = (names.get(s, s) for s in ir.sources(instr))
        what = (type(instr), getattr(instr, "op", ""), getattr(instr, "name", ""))
        names[dsts[0]] = first.setdefault((*what, *sources), dsts[0])
    return {reg.index for reg, name in names.items() if isinstance(reg, ir.Reg) and reg != name}


def _counter(ssa: Ssa, header: int) -> int:
    """Return the register that the comparison at a loop's header reads; -1 where it is another kind."""
    terminator = ssa.fn.blocks[header].terminator
    if isinstance(terminator, ir.Bra) and isinstance(terminator.cond, ir.Reg):
        compared = ssa.defs[terminator.cond.index][1]
        if isinstance(compared, ir.Setp) and isinstance(compared.a, ir.Reg):
            return compared.a.index
    return -1


def _in(operand: ir.Operand, registers: set[int]) -> bool:
    return isinstance(operand, ir.Reg) and operand.index in registers


def _fixed(operand: ir.Operand, body: _Body) -> bool:
    """Tell whether an operand is a number once the loop is unrolled."""
    return isinstance(operand, ir.Imm) or operand.index in body.constant


def _instructions(ssa: Ssa, blocks: range) -> Iterator[ir.Instr]:
    for b in blocks:
        yield from ssa.fn.blocks[b].instrs


def _sizes(ssa: Ssa, body: _Body, found: dict[int, int], copies: dict[int, int]) -> tuple[int, int]:
    """Return the instructions of a turn, and those of a turn once its counter is a constant.

    An inner loop that is unrolled counts its turns, and once what does not vary in it; any other loop counts
    as it stands.
    """
    size = copy = 0
    b = body.blocks.start
    while b < body.blocks.stop:
        if b > body.blocks.start and b in ssa.loops:
            blocks = range(b, ssa.loops[b] + 1)
            inside = _body(ssa, blocks.start, blocks[-1])
            turns = copies[b] * found[b] if b in found else _sizes(ssa, inside, found, copies)[0]
            once = [i for i in _instructions(ssa, blocks) if not _varies(i, inside)]
        else:
            blocks, turns, once = range(b, b + 1), 0, ssa.fn.blocks[b].instrs
            branches = b != body.blocks.start and isinstance(ssa.fn.blocks[b].terminator, ir.Bra)
            turns = BRANCH * branches
        size += turns + sum(_weight(i, body, False) for i in once)
        copy += turns + sum(_weight(i, body, True) for i in once)
        b = blocks.stop
    return size + (WHILE if body.is_while else LOOP), copy


def _varies(instr: ir.Instr, body: _Body) -> bool:
    """Tell whether a turn of a loop has to run an instruction: it stores, or makes something new."""
    return isinstance(instr, ir.St | ir.Atom) or any(d.index in body.varying for d in ir.destinations(instr))


def _weight(instr: ir.Instr, body: _Body, unrolled: bool) -> int:
    """Return how many instructions of NVVM one of WarpIR counts as in a turn."""
    written = ir.destinations(instr)
    if not _varies(instr, body) or (unrolled and any(d.index in body.constant for d in written)):
        return 0
    if any(d.index in body.repeats for d in written):
        return 0
    if isinstance(instr, ir.Alu):
        return _arithmetic(instr, body, unrolled)
    return _other(instr, body, unrolled)


def _arithmetic(instr: ir.Alu, body: _Body, unrolled: bool) -> int:
    """Return the weight of an Alu operation: an address takes in constants and the size of an element for
    nothing, the counter a constant."""
    if instr.type in ("f32", "f64"):
        return FLOAT.get(instr.op, 1)
    address = instr.dst.index in body.addresses
    if instr.op in ("mul", "shl") and isinstance(instr.srcs[-1], ir.Imm):
        return 0 if address and (unrolled or instr.srcs[-1].value in ir.BYTES.values()) else 1
    if instr.op in ("add", "sub"):
        if address:
            return 0 if any(_fixed(s, body) if unrolled else isinstance(s, ir.Imm) for s in instr.srcs) else 1
        return 0 if any(isinstance(s, ir.Imm) for s in instr.srcs) else 1
    return 1


def _other(instr: ir.Instr, body: _Body, unrolled: bool) -> int:
    match instr:
        case ir.Chk():
            return 0 if body.is_while else CHECK
        case ir.Ld(space="local", addr=addr) | ir.St(space="local", addr=addr):
            return 0 if unrolled and _fixed(addr, body) else ACCESS
        case ir.Ld() | ir.St() | ir.Atom():
            return ACCESS
        case ir.Setp(a=a) if _in(a, {body.counter}) and not unrolled and isinstance(instr.b, ir.Imm):
            return 0
        case ir.Cvt(to_type=to, from_type=kind) if to[0] in "su" and kind[0] in "su":
            return 0
    return 1


def _indexes_private(ssa: Ssa, body: _Body) -> bool:
    """Tell whether a private array is indexed with what the counter decides."""
    return any(
        isinstance(i, ir.Ld | ir.St) and i.space == "local" and _in(i.addr, body.constant)
        for i in _instructions(ssa, body.blocks)
    )
