"""What a whole kernel needs: private arrays kept in registers, what counting alone takes, registers a thread.

What it models: unrolling of loops with known trip counts (an array whose every index is then a constant
becomes registers, as in ptxas); a backward slice from branches and addresses; the pressure of live values.
What it leaves out: scheduling and spilling, so the register estimate is marked modelled. Checked by
`l1tex__t_sectors_pipe_lsu_mem_local_*` and `launch__registers_per_thread`.
"""

from __future__ import annotations

from dsl.passes.ssa import Phi, Ssa, build, registers_read
from dsl.warpir import ir
from gpusim.errors import DataDependent

_RESERVED_REGISTERS = 10
"""Registers of every kernel beside its values: addresses in flight, stack pointer, spilled predicates.

Calibrated on the recorded kernels; part of a modelled number.
"""


def register_arrays(fn: ir.Function) -> frozenset[str]:
    """Return the private arrays with constant indices alone, once loops of constant length are unrolled."""
    return register_arrays_of(build(fn)) if fn.local else frozenset()


def register_arrays_of(ssa: Ssa) -> frozenset[str]:
    """Return the same for a function already in SSA form."""
    dynamic = _dynamic_values(ssa)
    spilled = {
        instr.array
        for block in ssa.fn.blocks
        for instr in block.instrs
        if isinstance(instr, (ir.Ld, ir.St)) and instr.space == "local"
        and isinstance(instr.addr, ir.Reg) and instr.addr.index in dynamic
    }  # fmt: skip
    return frozenset(a.name for a in ssa.fn.local if a.name not in spilled)


def _dynamic_values(ssa: Ssa) -> set[int]:
    """Return the SSA registers that no unrolling makes constant.

    That is everything not built from constants and counters of constant loops.
    """
    dynamic: set[int] = set()
    changed = True
    while changed:
        changed = False
        for index, (block, definition) in ssa.defs.items():
            if index not in dynamic and not _constant_after_unrolling(ssa, block, definition, dynamic):
                dynamic.add(index)
                changed = True
    return dynamic


def _constant_after_unrolling(ssa: Ssa, block: int, definition: ir.Instr | Phi, dynamic: set[int]) -> bool:
    def known(o: ir.Operand) -> bool:
        return isinstance(o, ir.Imm) or o.index not in dynamic

    if isinstance(definition, Phi):
        if len(set(definition.incoming.values())) == 1:
            return all(map(known, definition.incoming.values()))
        if block not in ssa.loops:
            return False
        terminator = ssa.fn.blocks[block].terminator
        counts = isinstance(terminator, ir.Bra) and known(terminator.cond)
        return counts and all(map(known, definition.incoming.values()))
    if isinstance(definition, (ir.Sreg, ir.LdParam, ir.Ld, ir.Atom, ir.LdMatrix)):
        return False
    return all(map(known, ir.sources(definition)))


def counting_slice(ssa: Ssa) -> set[int]:
    """Return the SSA registers that branches, addresses and index checks depend on.

    Raise DataDependent if data are among them.
    """
    todo: list[tuple[ir.Operand, ir.Instr | ir.Terminator]] = []
    for block in ssa.fn.blocks:
        for instr in block.instrs:
            if isinstance(instr, ir.Access | ir.Move):
                todo += [(o, instr) for o in _addresses(instr)]
            elif isinstance(instr, ir.Chk) and instr.array != ir.DIVISOR:
                todo += [(instr.index, instr), (instr.extent, instr)]
        if isinstance(block.terminator, ir.Bra):
            todo.append((block.terminator.cond, block.terminator))
    needed: set[int] = set()
    while todo:
        operand, user = todo.pop()
        if isinstance(operand, ir.Imm) or operand.index in needed:
            continue
        needed.add(operand.index)
        _, definition = ssa.defs[operand.index]
        if isinstance(definition, ir.Ld | ir.Atom | ir.LdMatrix) and not is_constant(definition):
            raise DataDependent(_spoiled(ssa, definition, user))
        todo += [(s, user) for s in _depends_on(ssa, definition)]
    return needed


def is_constant(definition: ir.Ld | ir.Atom | ir.LdMatrix) -> bool:
    """Tell whether what is read is the same in every launch: constant memory."""
    return isinstance(definition, ir.Ld) and definition.space == "const"


def _addresses(instr: ir.Access | ir.Move) -> list[ir.Operand]:
    """List what decides which memory an instruction moves."""
    if isinstance(instr, ir.CpAsync):
        return list(ir.sources(instr))
    return [instr.addr]


def _depends_on(ssa: Ssa, definition: ir.Instr | Phi) -> list[ir.Operand]:
    """List the operands a value is made from.

    What a barrier gathered is made from every barrier's predicate.
    """
    if isinstance(definition, ir.BarResult):
        ends = [block.terminator for block in ssa.fn.blocks]
        return [end.pred for end in ends if isinstance(end, ir.Bar) and end.pred is not None]
    return list(definition.incoming.values() if isinstance(definition, Phi) else ir.sources(definition))


def _spoiled(ssa: Ssa, load: ir.Ld | ir.Atom | ir.LdMatrix, user: ir.Instr | ir.Terminator) -> str:
    what = "a branch" if isinstance(user, ir.Bra) else "an address"
    return (
        f"--counts-only: {what} of kernel {ssa.fn.name} at {user.loc.file}:{user.loc.line} depends on data "
        f"read from {load.array} at {load.loc.file}:{load.loc.line}, so its counts need the data; "
        "run it without --counts-only"
    )


def estimate_registers(ssa: Ssa, arrays: frozenset[str]) -> int:
    """Estimate the registers of a thread: the most 32-bit values live at once, private arrays, a reserve.

    Modelled. Values that are the same for the whole block (parameters, blockIdx) are left out: they sit in
    uniform registers or constant memory.
    """
    words = {i: _words(ssa.defs[i][1], reg) for i, reg in ssa.registers().items()}
    peak = 0
    for b, block in enumerate(ssa.fn.blocks):
        live: set[int] = set()
        for t in ir.successors(block.terminator):
            live |= ssa.live_in[t]
            live |= registers_read(tuple(p.incoming[b] for p in ssa.phis[t]))
        for instr in reversed([*block.instrs, block.terminator]):
            peak = max(peak, sum(words[i] for i in live))
            live -= {dst.index for dst in ir.destinations(instr)}
            live |= registers_read(ir.sources(instr))
    private = sum(-(-a.bytes // 4) for a in ssa.fn.local if a.name in arrays)
    return peak + private + _RESERVED_REGISTERS


def _words(definition: ir.Instr | Phi, reg: ir.Reg) -> int:
    """Return the 32-bit registers of a thread that a value takes."""
    for_the_block = isinstance(definition, ir.Sreg) and "ctaid" in definition.name
    if reg.type == "pred" or for_the_block or isinstance(definition, ir.LdParam):
        return 0
    return 2 if reg.type.endswith("64") else 1
