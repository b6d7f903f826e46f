"""Warp operations of the interpreter: what lanes of one warp learn from each other's registers.

What it models: shuffles, votes, matches and syncwarp, by the lanes that run the instruction and the mask that
each of them brings. Lanes that have returned or never existed may be named; they are in no result, as the PTX
ISA says of match.sync and vote.sync, and are no source of a shuffle. What it leaves out: lanes that meet at
different instructions (an error here), and time. Which ncu metric checks it: none of the memory's; the
instructions are counted as `gpusim.counters.Counters.warp_operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dsl.interpreter.warp import Warp
from dsl.semantics import messages
from dsl.semantics.floats import Array
from dsl.semantics.messages import LANES, Dim3
from dsl.warpir import ir


class Place(NamedTuple):
    """Name the block that runs, for messages."""

    kernel: str
    block: Dim3
    block_size: Dim3


def source_lane(mode: str, own: int, lane: int) -> int:
    """Return the lane that a lane of a shuffle reads: its own where the place is past the warp's ends."""
    if mode == "idx":
        return lane % LANES
    other = {"up": own - lane, "down": own + lane, "bfly": own ^ lane}[mode]
    return other if 0 <= other < LANES else own


def bits_of(mask: Array) -> int:
    """Return a mask of 32 lanes as an integer, lane 0 in bit 0."""
    return sum(1 << int(lane) for lane in np.flatnonzero(mask))


def _lanes(values: Array, mask: Array) -> dict[int, Any]:
    """Map each lane of a mask to its value."""
    return {int(lane): values[lane].item() for lane in np.flatnonzero(mask)}


def _shuffle(place: Place, warp: Warp, instr: ir.Shfl, mask: Array) -> Array:
    lanes = _lanes(warp.read(instr.lane, "s32"), mask)
    sources = {own: source_lane(instr.mode, own, lane) for own, lane in lanes.items()}
    name = messages.operation_name(instr)
    messages.check_shuffle_sources(
        place.kernel, name, place.block, place.block_size, warp.number, sources, *instr.loc
    )
    return warp.read(instr.src, instr.type)[[sources.get(lane, lane) for lane in range(LANES)]]


def vote(mode: str, predicates: Mapping[int, bool]) -> int:
    """Return what a vote gives from the predicate of each lane that takes part: 0 or 1, or the ballot."""
    holding = {lane for lane, holds in predicates.items() if holds}
    answers = {
        "all": len(holding) == len(predicates),
        "any": bool(holding),
        "eq": len(holding) in (0, len(predicates)),
        "ballot": sum(1 << lane for lane in holding),
    }
    return int(answers[mode])


def match(mode: str, values: Mapping[int, Any]) -> dict[int, int]:
    """Map each lane that takes part to the lanes with an equal value; mode all: to all of them or to 0."""
    same = {
        lane: sum(1 << other for other in values if values[other] == own) for lane, own in values.items()
    }
    if mode == "any":
        return same
    whole = sum(1 << lane for lane in values)
    return {lane: whole if lanes == whole else 0 for lane, lanes in same.items()}


def _vote(place: Place, warp: Warp, instr: ir.Vote, mask: Array) -> Array:
    answer = vote(instr.mode, _lanes(warp.read(instr.pred, "pred"), mask))
    return np.full(LANES, answer, np.uint32 if instr.mode == "ballot" else np.bool_)


def _match(place: Place, warp: Warp, instr: ir.Match, mask: Array) -> Array:
    values = warp.read(instr.src, instr.type)
    found = match(instr.mode, _lanes(values.view(f"u{values.dtype.itemsize}"), mask))
    return np.array([found.get(lane, 0) for lane in range(LANES)], np.uint32)


_GIVES: dict[type, Callable[[Place, Warp, Any, Array], Array]] = {
    ir.Shfl: _shuffle,
    ir.Vote: _vote,
    ir.Match: _match,
}


def execute(place: Place, warp: Warp, instr: ir.WarpOp, mask: Array) -> None:
    """Run a warp operation in the lanes of a mask; raise WarpDivergence where it names other live lanes."""
    named, live = _lanes(warp.read(instr.mask, "u32"), mask), bits_of(warp.live(mask))
    name = messages.operation_name(instr)
    messages.check_warp_masks(
        place.kernel, name, place.block, place.block_size, warp.number, named, live, *instr.loc
    )
    if not isinstance(instr, ir.SyncWarp):
        warp.write(instr.dst, _GIVES[type(instr)](place, warp, instr, mask), mask)


def active_mask(warp: Warp, instr: ir.ActiveMask, mask: Array) -> None:
    """Write the lanes that run the instruction."""
    warp.write(instr.dst, np.full(LANES, bits_of(mask), np.uint32), mask)
