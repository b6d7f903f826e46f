"""The table of shared memory in the report: accesses as written, and as compiled where that differs.

What it leaves out: atomics as compiled, which stay as they are written, and the card's arbitration. The
numbers as written are exact, those as compiled follow the rules of docs/as_compiled.md; ncu's are the latter
(`smsp__inst_executed_op_shared_*`, `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_*`).
"""

from __future__ import annotations

from gpusim.counters import Issued, SharedCounts
from gpusim.launch import Launch, is_counted
from gpusim.metric import EXACT, MODELLED, bank_conflicts, ratio
from gpusim.table import Cell, Table

NOT_THERE = "not counted"


def shared_memory(launch: Launch) -> tuple[Table, ...]:
    """Return the table of shared memory: requests, wavefronts, what they would be free of conflicts, and the
    difference; as written, and as compiled where that differs.
    """
    counters = launch.counters
    kinds = (
        ("load", counters.shared_load),
        ("store", counters.shared_store),
        ("atomic", counters.shared_atom),
        ("ldmatrix", counters.shared_matrix),
        ("cp.async", counters.shared_async),
    )
    rows = [_shared_row(name, c) for name, c in kinds if c.requests]
    rows += [_issued_row(name, issued) for name, issued in merged(launch)]
    if not is_counted(launch, "shared_load"):
        rows = [("load, store, atomic", None, None, None, None, None, None, NOT_THERE)]
    headers = (
        "Shared",
        "Requests",
        "Bytes Asked",
        "Wavefronts",
        "Ideal",
        "Conflicts",
        "Per Request",
        "Source",
    )
    return (Table(headers, tuple(rows), "lrrrrrrl"),) if rows else ()


def _shared_row(name: str, c: SharedCounts) -> tuple[Cell, ...]:
    return (
        name,
        c.requests,
        c.bytes,
        c.wavefronts,
        c.ideal_wavefronts,
        bank_conflicts(c),
        ratio(c.wavefronts, c.requests),
        EXACT,
    )


def _issued_row(name: str, i: Issued) -> tuple[Cell, ...]:
    return (
        f"{name}, compiled",
        i.instructions,
        "",
        i.wavefronts,
        i.ideal_wavefronts,
        bank_conflicts(i),
        ratio(i.wavefronts, i.instructions),
        MODELLED,
    )


def merged(launch: Launch) -> tuple[tuple[str, Issued], ...]:
    """Return the kinds of shared access that are not compiled as they are written, with what they become."""
    if launch.as_compiled is None:
        return ()
    kinds = (("load", launch.counters.shared_load, launch.as_compiled.shared_load),
             ("store", launch.counters.shared_store, launch.as_compiled.shared_store))
    return tuple((name, issued) for name, c, issued in kinds
                 if issued != Issued(c.requests, c.wavefronts, c.ideal_wavefronts))


def note(launch: Launch) -> tuple[str, ...]:
    """Return the sentence below the table where some accesses are not compiled as they are written."""
    if not merged(launch):
        return ()
    return ("Compiled: ptxas merges neighbouring shared accesses into wide instructions, which ncu counts "
            "(modelled, rules in docs/as_compiled.md).",)
