"""Warp operations of the Python oracle: threads that wait for the lanes their mask names, then go on.

What it models: a thread that reaches a warp operation waits until every lane of its mask that has not
returned waits at the same place (of the source, in the same iteration of the loops around) with the same
mask. A thread that ended by going past that place counts as one that has not returned, as in lockstep.
activemask names no lanes: it gives those that wait at the same call once no thread of the warp can run and no
other operation is complete. What it leaves out: a `while True` that begins with another loop
(dsl/oracle/iterations.py). Checked by no ncu metric; tests hold it against the interpreter.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from dsl.oracle.arrays import Recorder
from dsl.oracle.numbers import sized
from dsl.oracle.threads import Meeting, Strand, bypassed, line_of
from dsl.semantics.lane_ops import DTYPES
from dsl.semantics.messages import LANES, Dim3, check_shuffle_sources, check_warp_masks, lanes_missing

FULL_MASK = 0xFFFFFFFF
Lanes = dict[int, Any]


def _lane(strand: Strand) -> int:
    return strand.thread.linear % LANES


def _meeting(strand: Strand) -> Meeting:
    meeting = strand.thread.meeting
    assert meeting is not None
    return meeting


def _live(warp: list[Strand], group: list[Strand]) -> int:
    """Return the lanes of a warp that have not returned before the place at which a group waits."""
    line = line_of(group[0])
    there = [s for s in warp if not s.done or bypassed(s.thread, line, s.thread.passed_line)]
    return sum(1 << _lane(s) for s in there)


def _complete(warp: list[Strand], group: list[Strand]) -> bool:
    """Say whether the threads at one place are the live lanes that the mask of each names."""
    if _meeting(group[0]).whole:
        return len(group) == LANES
    here, live = sum(1 << _lane(s) for s in group), _live(warp, group)
    return all((mask := _meeting(s).mask) is not None and mask & live == here for s in group)


def _let_go(kernel: str, block_size: Dim3, group: list[Strand]) -> None:
    """Give each thread of a group its result; raise WarpDivergence for a shuffle from outside the group."""
    first, thread = _meeting(group[0]), group[0].thread
    sources = {_lane(s): m.source for s in group if (m := _meeting(s)).source is not None}
    check_shuffle_sources(
        kernel, first.operation, thread.ctaid, block_size, thread.warp, sources, *first.site[1:]
    )
    results = first.finish({_lane(s): _meeting(s).value for s in group})
    for strand in group:
        _meeting(strand).result = results.get(_lane(strand))
        strand.thread.passed_line = line_of(strand)
        strand.thread.meeting = None


def let_go(kernel: str, block_size: Dim3, warp: list[Strand]) -> tuple[str, list[Strand]] | None:
    """Let the threads of one operation of a warp go on; return its name and the threads, None if none wait.

    warp: its threads that had not returned when the region between barriers began. The first complete
    operation in the order of the source goes, or the first activemask where none is complete. Raises
    WarpDivergence where nobody can go on.
    """
    groups: dict[tuple[int, ...], list[Strand]] = {}
    waiting = [s for s in warp if s.thread.meeting is not None]
    for strand in sorted(waiting, key=lambda s: (_meeting(s).order, _lane(s))):
        groups.setdefault(_meeting(strand).path, []).append(strand)
    if not groups:
        return None
    ready = [g for g in groups.values() if _complete(warp, g)]
    ready += [g for g in groups.values() if _meeting(g[0]).mask is None]
    if not ready:
        _refuse(kernel, block_size, warp, next(iter(groups.values())))
    name = _meeting(ready[0][0]).operation
    _let_go(kernel, block_size, ready[0])
    return name, ready[0]


def _refuse(kernel: str, block_size: Dim3, warp: list[Strand], group: list[Strand]) -> None:
    """Raise WarpDivergence for the lowest lane that is wrong at an operation that is not complete."""
    first, thread = _meeting(group[0]), group[0].thread
    masks = {_lane(s): m for s in group if (m := _meeting(s).mask) is not None}
    place = (kernel, first.operation, thread.ctaid, block_size, thread.warp)
    if first.whole:
        raise lanes_missing(*place, sum(1 << lane for lane in masks), *first.site[1:])
    check_warp_masks(*place, masks, _live(warp, group), *first.site[1:])


def _bits(value: Any) -> Any:
    """Return what a match compares: a float's bits, or an integer."""
    if isinstance(value, np.float32):
        return struct.pack("f", value)
    return struct.pack("d", value) if isinstance(value, float) else int(value)


def _named(lanes: Lanes, holds: Callable[[Any], bool]) -> int:
    return sum(1 << lane for lane, value in lanes.items() if holds(value))


def _same(lanes: Lanes) -> dict[int, int]:
    """Map each lane to the lanes with its bits."""
    bits = {lane: _bits(value) for lane, value in lanes.items()}
    return {lane: _named(bits, partial(operator.eq, own)) for lane, own in bits.items()}


def _match_all(lanes: Lanes) -> Lanes:
    everyone = _named(lanes, lambda value: True)
    equal = all(same == everyone for same in _same(lanes).values())
    return dict.fromkeys(lanes, (_int32(everyone if equal else 0), equal))


def _int32(value: int) -> int:
    return sized(value, DTYPES["s32"])


def _to_all(answer: Callable[[Lanes], Any]) -> Callable[[Lanes], Lanes]:
    return lambda lanes: dict.fromkeys(lanes, answer(lanes))


class WarpOperations:
    """Be the part of `cuda` in which threads of a warp wait for one another."""

    recorder: Recorder

    def _meet(
        self,
        name: str,
        frame: FrameType,
        mask: Any,
        finish: Callable[[Lanes], Lanes],
        value: Any = None,
        source: int | None = None,
        whole: bool = False,
    ) -> Any:
        """Wait for the lanes of a mask; return this thread's part of what `finish` makes of their values."""
        thread = self.recorder.thread
        if thread.frame is None:
            self.recorder.see(frame)
        site = self.recorder.site(frame)
        path = (site.number, thread.region, *thread.loops)
        order = (*thread.order(), *self.recorder.lines(frame))
        named = None if mask is None else int(mask) & FULL_MASK
        meeting = thread.meeting = Meeting(name, site, path, order, named, finish, value, source, whole)
        self.recorder.strand.pause()
        return meeting.result

    def meet_all(
        self, name: str, frame: FrameType, finish: Callable[[Lanes], Lanes], value: Any = None
    ) -> Any:
        """Wait for all 32 lanes of the warp; return this thread's part of what `finish` makes."""
        return self._meet(name, frame, FULL_MASK, finish, value, whole=True)

    def _shuffle(self, name: str, frame: FrameType, mask: Any, value: Any, source: int) -> Any:
        own = self.recorder.thread.linear % LANES
        source = source if 0 <= source < LANES else own
        return self._meet(
            name,
            frame,
            mask,
            lambda lanes: {lane: lanes[read][0] for lane, (_, read) in lanes.items()},
            (value, source),
            source,
        )

    def shfl_sync(self, mask: Any, value: Any, src_lane: Any) -> Any:
        """Return the value of lane src_lane % 32."""
        return self._shuffle("shfl_sync", sys._getframe(1), mask, value, int(src_lane) % LANES)

    def shfl_up_sync(self, mask: Any, value: Any, delta: Any) -> Any:
        """Return the value of the lane `delta` below, its own where there is none."""
        source = self.recorder.thread.linear % LANES - int(delta)
        return self._shuffle("shfl_up_sync", sys._getframe(1), mask, value, source)

    def shfl_down_sync(self, mask: Any, value: Any, delta: Any) -> Any:
        """Return the value of the lane `delta` above, its own where there is none."""
        source = self.recorder.thread.linear % LANES + int(delta)
        return self._shuffle("shfl_down_sync", sys._getframe(1), mask, value, source)

    def shfl_xor_sync(self, mask: Any, value: Any, lane_mask: Any) -> Any:
        """Return the value of the lane whose number differs in the bits of lane_mask."""
        source = self.recorder.thread.linear % LANES ^ int(lane_mask)
        return self._shuffle("shfl_xor_sync", sys._getframe(1), mask, value, source)

    def all_sync(self, mask: Any, predicate: Any) -> bool:
        """Say whether the predicate holds in every lane."""
        answer = _to_all(lambda lanes: all(lanes.values()))
        return bool(self._meet("all_sync", sys._getframe(1), mask, answer, bool(predicate)))

    def any_sync(self, mask: Any, predicate: Any) -> bool:
        """Say whether the predicate holds in a lane."""
        answer = _to_all(lambda lanes: any(lanes.values()))
        return bool(self._meet("any_sync", sys._getframe(1), mask, answer, bool(predicate)))

    def eq_sync(self, mask: Any, predicate: Any) -> bool:
        """Say whether the predicate is the same in all lanes."""
        answer = _to_all(lambda lanes: len(set(lanes.values())) == 1)
        return bool(self._meet("eq_sync", sys._getframe(1), mask, answer, bool(predicate)))

    def ballot_sync(self, mask: Any, predicate: Any) -> Any:
        """Return the lanes in which the predicate holds (int32)."""
        answer = _to_all(lambda lanes: _int32(_named(lanes, bool)))
        return self._meet("ballot_sync", sys._getframe(1), mask, answer, bool(predicate))

    def match_any_sync(self, mask: Any, value: Any) -> Any:
        """Return the lanes whose value has the bits of this one's (int32)."""
        return self._meet(
            "match_any_sync",
            sys._getframe(1),
            mask,
            lambda lanes: {lane: _int32(same) for lane, same in _same(lanes).items()},
            value,
        )

    def match_all_sync(self, mask: Any, value: Any) -> Any:
        """Return (the mask's lanes that take part, True) where all have the same bits, else (0, False)."""
        return self._meet("match_all_sync", sys._getframe(1), mask, _match_all, value)

    def syncwarp(self, mask: Any = FULL_MASK) -> None:
        """Wait for the lanes of a mask."""
        self._meet("syncwarp", sys._getframe(1), mask, lambda lanes: {})

    def activemask(self) -> Any:
        """Return the lanes that wait here (uint32)."""
        answer = _to_all(lambda lanes: sized(_named(lanes, lambda value: True), DTYPES["u32"]))
        return self._meet("activemask", sys._getframe(1), None, answer)

    def lanemask_lt(self) -> Any:
        """Return the lanes below this one (uint32)."""
        return sized((1 << self.recorder.thread.linear % LANES) - 1, DTYPES["u32"])
