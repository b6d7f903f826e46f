"""Print the tables of docs/as_compiled.md from the code that applies the rules.

    python docs/as_compiled_tables.py merges        shared accesses that become one instruction
    python docs/as_compiled_tables.py unrolling     the limits and weights of loops that are unrolled
    python docs/as_compiled_tables.py arithmetic    what each float operation executes

`python docs/refresh_readme.py docs/as_compiled.md` puts them into the page; a test holds the page to them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dsl.passes import unrolling
from dsl.passes.as_compiled import MERGES
from dsl.warpir import machine

NAMES = {"xu": "XU (warp)"}
COLUMNS = ("ffma", "fmul", "fadd", "dfma", "dmul", "dadd", "mufu", "xu", "integer")


def merges() -> list[tuple[str, ...]]:
    """Return a row a rule of dsl/passes/as_compiled.py."""
    rows: list[tuple[str, ...]] = [("Written", "Bytes", "Aligned Piece", "Wanted At Least", "Becomes")]
    for rule in MERGES:
        kind, code = ("load", "LDS") if rule.is_load else ("store", "STS")
        width = f".{8 * rule.piece_bytes}" if rule.piece_bytes > 4 else ""
        most = rule.piece_bytes // rule.element_bytes
        rows.append((kind, str(rule.element_bytes), f"{rule.piece_bytes} bytes", f"{rule.least} of {most}",
                     code + width))
    return rows


def limits() -> list[tuple[str, ...]]:
    """Return the limits and weights of dsl/passes/unrolling.py."""
    named = (
        ("turns x instructions of a turn, at most", unrolling.LIMIT),
        ("the same where the counter indexes a private array", unrolling.PRIVATE_LIMIT),
        ("in two steps: first 2, 4, 8, ... turns of together at most", unrolling.PART_LIMIT),
        ("in two steps: turns that may stay, at most", unrolling.TURNS_LEFT),
        ("a loop over a range", unrolling.LOOP),
        ("a while loop (its indices do not wrap)", unrolling.WHILE),
        ("an if", unrolling.BRANCH),
        ("an index that may wrap", unrolling.CHECK),
        ("a load or store", unrolling.ACCESS),
        ("a float operation, if not below", 1),
        *((f"a float {op}", n) for op, n in unrolling.FLOAT.items() if n != unrolling.CALL),
        ("a function of math that is one operation of the IR", unrolling.CALL),
    )
    return [("What", "Instructions"), *((what, str(n)) for what, n in named)]


def arithmetic() -> list[tuple[str, ...]]:
    """Return what each float operation executes, from dsl/warpir/machine.py."""
    rows: list[tuple[str, ...]] = [("Operation", *(NAMES.get(c, c.upper()) for c in COLUMNS))]
    tables: tuple[tuple[str, Mapping[str, Mapping[str, int]]], ...] = (
        ("float32", machine.F32), ("float64", machine.F64), ("any float", machine.FLOAT_ANY))
    for kind, table in tables:
        for op, counts in table.items():
            cells = (str(counts[c]) if counts.get(c) else "" for c in COLUMNS)
            rows.append((f"{kind} {op}", *cells))
    return rows


TABLES: dict[str, Callable[[], list[tuple[str, ...]]]] = {
    "merges": merges, "unrolling": limits, "arithmetic": arithmetic}


def text(rows: list[tuple[str, ...]]) -> str:
    """Return rows as columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in (rows[0], tuple("-" * w for w in widths), *rows[1:]):
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in TABLES]:
        raise SystemExit(f"as_compiled_tables: name one table of {', '.join(TABLES)}")
    print(text(TABLES[sys.argv[1]]()))
