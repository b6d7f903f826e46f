"""A timeline as Chrome trace JSON, which https://ui.perfetto.dev opens.

One process an SM with one track a block slot, slices of blocks and in them those of their phases; a process
of running totals (L1, L2, DRAM, active warps) and one of launches. What it leaves out: time. The format has
microseconds alone, and one of them is one step of the replay (visualize/replay_log.py), as the file says.
Slices are complete events ("X") that nest, sorted by ts, parents first; numbers of processes and threads
begin at 1, as Perfetto treats 0 as the idle thread, and no two threads share one. Checked by the launch's
counters, which the totals are.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.errors import BadOption, UnsupportedFeature
from gpusim.l2 import COUNTS
from gpusim.launch import Launch
from gpusim.trace import SECTOR_BYTES
from visualize.replay_log import BlockSlice, LaunchLog, ReplayLog

Event = dict[str, Any]
SLOTS = 64
"""Above the block slots that an SM of any GPU has."""
LAUNCHES, MEMORY = 1, 2
FIRST_SM = 3
"""Numbers of processes."""
TOTALS: dict[str, dict[str, tuple[tuple[str, ...], int]]] = {
    "L1 load bytes so far (modelled)": {
        "hit": (("l1_load_hits",), SECTOR_BYTES),
        "miss": (("l1_load_misses",), SECTOR_BYTES),
    },
    "L2 bytes so far (modelled)": {
        "read": (("l2_read",), SECTOR_BYTES),
        "write": (("l2_write",), SECTOR_BYTES),
        "atomic": (("l2_red", "l2_atom"), SECTOR_BYTES),
    },
    "DRAM bytes so far (modelled)": {
        "read": (("dram_read_bytes",), 1),
        "write": (("dram_write_bytes",), 1),
    },
}
"""Track -> series -> counters of gpusim.counters.Hierarchy that it adds up, and bytes of one of them."""
STEP = "a step is one trace record of a request, one barrier, or one stretch without either"
CLOCK = (
    f"the clock of the replay, not time: 1 us in this file is 1 step, and {STEP}. In a turn every resident "
    "block replays up to quantum_records records; the next turn begins when the block with most steps has "
    "made them."
)


def engine_with_trace(engine: str, what: str = "a timeline") -> str:
    """Return the engine to run for a timeline; raise BadOption for one that makes no trace."""
    if engine == "oracle":
        raise BadOption(f"--engine oracle makes no trace of its accesses, and {what} is drawn from one; "
                        "leave --engine out, or take compiled or ir")
    return "compiled" if engine == "auto" else engine


def without_trace(kernel: str, refusal: UnsupportedFeature, what: str = "timeline") -> UnsupportedFeature:
    """Return the refusal of a kernel that the compiler does not take, and that so leaves no trace."""
    return UnsupportedFeature(f"there is no {what} of {kernel}, as only compiled kernels leave a trace. "
                              f"The compiler says: {refusal}")


def trace(launches: Sequence[Launch], log: ReplayLog) -> dict[str, Any]:
    """Return the trace of some launches, the last ones that a log has seen, as what JSON can hold.

    Raises UnsupportedFeature for launches that it has not seen, as their engine makes no trace.
    """
    seen = log.launches[-len(launches) :]
    if len(seen) != len(launches) or any("hierarchy" in launch.not_counted for launch in launches):
        names = ", ".join(launch.kernel for launch in launches)
        raise UnsupportedFeature(f"there is no timeline of {names}: no trace of its accesses was watched. "
                                 "The compiled engine and the interpreter of WarpIR make one.")
    zero = seen[0].start
    events = [
        *_launch_events(launches, seen),
        *_totals(launches, seen),
        *(e for pair in zip(launches, seen, strict=True) for e in _block_events(*pair)),
    ]
    for event in events:
        event["ts"] -= zero
    events.sort(key=lambda e: (e["ts"], -e.get("dur", 0)))
    named = [*_names(seen), *events]
    return {"traceEvents": named, "displayTimeUnit": "ns", "otherData": _about(launches, seen, log)}


def written(found: dict[str, Any], out: str) -> bytes:
    """Return the bytes of a file: JSON, packed where the name says so; the same for the same trace."""
    text = json.dumps(found, separators=(",", ":"), default=str).encode()
    return gzip.compress(text, mtime=0) if out.endswith(".gz") else text


def said(found: dict[str, Any]) -> str:
    """Return what a trace holds, in one line for the person who asked for it."""
    about = found["otherData"]
    return f"{about['sampling']}. The clock counts steps of the replay, not time."


# ------------------------------------------------------------------------------------------ events


def _sm_process(sm: int) -> int:
    return FIRST_SM + sm


def _thread(block: BlockSlice) -> int:
    return (FIRST_SM + block.sm) * SLOTS + block.slot


def _names(seen: Sequence[LaunchLog]) -> Iterator[Event]:
    """Yield the metadata that name every process and thread, and put them in order."""
    tracks = sorted({(b.sm, b.slot, _thread(b)) for launch in seen for b in launch.blocks})
    processes = {LAUNCHES: "Launches (steps of the replay, not time)", MEMORY: "Memory (modelled)"}
    processes |= {_sm_process(sm): f"SM {sm}" for sm, _, _ in tracks}
    threads = [(LAUNCHES, LAUNCHES, "launches"), (MEMORY, MEMORY, "totals")]
    threads += [(_sm_process(sm), thread, f"block slot {slot}") for sm, slot, thread in tracks]
    for pid, name in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for pid, tid, name in threads:
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _slice(name: str, category: str, span: tuple[int, int], track: tuple[int, int], args: Any) -> Event:
    pid, tid = track
    return {
        "ph": "X", "name": name, "cat": category, "ts": span[0], "dur": span[1] - span[0],
        "pid": pid, "tid": tid, "args": args,
    }  # fmt: skip


def _launch_events(launches: Sequence[Launch], seen: Sequence[LaunchLog]) -> Iterator[Event]:
    for launch, log in zip(launches, seen, strict=True):
        args = {
            "grid": launch.grid, "block": launch.block, "waves": log.waves, "blocks": log.block_count,
            "blocks shown": len(log.blocks),
        }  # fmt: skip
        yield _slice(launch.kernel, "launch", (log.start, log.end), (LAUNCHES, LAUNCHES), args)


def _block_events(launch: Launch, log: LaunchLog) -> Iterator[Event]:
    """Yield the slices of a launch's blocks, each before those of its phases."""
    for block in log.blocks:
        track = _sm_process(block.sm), _thread(block)
        args = {"kernel": launch.kernel, "block": _place(block.number, launch.grid), "wave": block.wave}
        yield _slice(f"block {block.number}", "block", (block.start, block.end), track, args)
        if block.phases is None:
            continue
        rows = zip(*(column.tolist() for column in block.phases), strict=True)
        for kind, arrays, start, end, requests, sectors, site in rows:
            name, category = log.arrays.title(kind, arrays)
            args = {}
            if site >= 0:
                _, file, line = log.arrays.sites[site]
                args = {"requests": requests, "sectors": sectors, "first line": f"{Path(file).name}:{line}"}
            yield _slice(name, category, (start, end), track, args)


def _place(number: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return blockIdx of a block's number; x runs fastest."""
    return number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])


# ------------------------------------------------------------------------------------------ counters


def _totals(launches: Sequence[Launch], seen: Sequence[LaunchLog]) -> Iterator[Event]:
    """Yield the counter tracks: running totals over all launches, and the warps that are active."""
    before = np.zeros(len(COUNTS), np.int64)
    for launch, log in zip(launches, seen, strict=True):
        warps = -(-int(np.prod(launch.block)) // 32)
        for sample in log.samples:
            yield from _counter_events(sample.clock, before + sample.counts)
            yield _counter(sample.clock, "active warps", {"warps": sample.blocks * warps})
        before = before + log.counts
        yield from _counter_events(log.end, before)
        yield _counter(log.end, "active warps", {"warps": 0})


def _counter_events(clock: int, counts: np.ndarray) -> Iterator[Event]:
    known = dict(zip(COUNTS, counts.tolist(), strict=True))
    for track, series in TOTALS.items():
        sums = {name: each * sum(known[c] for c in parts) for name, (parts, each) in series.items()}
        yield _counter(clock, track, sums)


def _counter(clock: int, name: str, series: dict[str, int]) -> Event:
    return {"ph": "C", "name": name, "ts": clock, "pid": MEMORY, "tid": MEMORY, "args": series}


# ------------------------------------------------------------------------------------------ about the file


def _about(launches: Sequence[Launch], seen: Sequence[LaunchLog], log: ReplayLog) -> dict[str, Any]:
    """Return what the file says of itself."""
    first = launches[0]
    return {
        "gpu": f"{first.arch.name}, simulated",
        "kernels": [launch.kernel for launch in launches],
        "options": {name: value for name, value in first.options.items() if value is not None},
        "time_unit": "1 us = 1 step of the replay; " + STEP,
        "clock": CLOCK,
        "quantum_records": first.quantum_records,
        "l2": first.l2,
        "totals": "bytes of data since the file's beginning; not among them: reads of code, and writes for "
                  "others, of DRAM",
        "sampling": _sampling(seen, log),
        "counter_sampling": f"one turn of {log.every_turn}, as it begins, and each launch's end",
        "max_slices": log.max_slices,
    }  # fmt: skip


def _sampling(seen: Sequence[LaunchLog], log: ReplayLog) -> str:
    """Say which blocks are in the file, and why others are not."""
    blocks = [b for launch in seen for b in launch.blocks]
    every = sum(launch.block_count for launch in seen)
    slices = sum(b.slices for b in blocks)
    whole = f"{len(blocks):,} of {every:,} blocks in {slices:,} slices"
    bare = sum(b.phases is None for b in blocks)
    if len(blocks) == every and not bare:
        return f"{whole}: all of them"
    which = _shown(sorted({b.sm for b in blocks})) if log.every_sm > 1 else ""
    less = f"{bare:,} blocks without their phases" if bare else ""
    why = f"for --max-slices {log.max_slices:,}"
    return f"{whole}: {', '.join(filter(None, (which, less, why)))}; totals are those of all blocks"


def _shown(sms: list[int]) -> str:
    """Say which SMs are shown, of a list with equal steps."""
    names = ", ".join(map(str, sms if len(sms) <= 3 else [*sms[:3], "...", sms[-1]]))
    return f"SM {names} alone is shown" if len(sms) == 1 else f"SMs {names} are shown"
