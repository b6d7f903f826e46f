"""The threads of one block as Python threads of which exactly one runs at a time, handed over at barriers.

What it models: thread 0 runs to its barrier, its warp operation or its end, then thread 1, and so on; the
same order every time, so a debugger can step through a kernel. What it leaves out: warps (dsl/oracle/run.py
groups accesses into them afterwards, dsl/oracle/warp.py lets lanes meet) and speed. Checked by no ncu
metric. The loops that a thread is in are told by dsl/oracle/loops.py and dsl/oracle/iterations.py.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import linecache
import sys
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from dsl.semantics.messages import LANES, Dim3, barrier_divergence

_TRIES, _TRY_SECONDS, _WAITING_SECONDS = 3, 1.0, 0.25
"""How often a running thread is told to end, how long each time, and how long a waiting one may take."""


class Cancelled(SystemExit):
    """Unwind a thread of a block that was interrupted or in which another one failed; no kernel catches it.

    Python ends a thread silently that leaves by a SystemExit, wherever in the thread it arrives.
    """


class Site(NamedTuple):
    """Name a place in the source that accesses memory or waits, calls of a device function told apart."""

    number: int
    file: str
    line: int


@dataclass
class Meeting:
    """Hold what a thread brings to a warp operation: where it waits, for which lanes, and with what.

    path: equal for lanes that meet. order: sorts by the place in the source. mask: None for activemask.
    finish: maps the value of each lane to the result of each. source: the lane that a shuffle reads.
    whole: all 32 lanes have to come, those that have returned too.
    """

    operation: str
    site: Site
    path: tuple[int, ...]
    order: tuple[int, ...]
    mask: int | None
    finish: Callable[[dict[int, Any]], dict[int, Any]]
    value: Any
    source: int | None = None
    whole: bool = False
    result: Any = None


class FollowedLoop(NamedTuple):
    """Name the lines of a loop: one that runs once an iteration, the first and the last.

    once: the line of a while loop's condition; Python drops a constant one, so there it is the first line of
    the body. spins: it is a while loop, which may have no end.
    """

    once: int
    first: int
    last: int
    spins: bool


class OpenLoop(NamedTuple):
    """Hold a followed loop that a thread is in: the frame it stands in, its lines, its place in Thread.loops.
    """

    frame: FrameType
    loop: FollowedLoop
    depth: int


@dataclass
class Thread:
    """Hold one CUDA thread: where it is, what it has accessed, and how far it has come."""

    block: int
    ctaid: Dim3
    linear: int
    tid: Dim3
    accesses: list[Any] = field(default_factory=list)
    region: int = 0
    """Barriers passed."""
    loops: list[int] = field(default_factory=list)
    """Iteration number of each loop it is in, outermost first."""
    loop_lines: list[tuple[int, ...]] = field(default_factory=list)
    """Where each of those loops stands: the lines of the calls down to it, and its own."""
    followed: list[OpenLoop] = field(default_factory=list)
    """Those among them that dsl/oracle/iterations.py follows."""
    occurrences: dict[Hashable, int] = field(default_factory=dict)
    local_arrays: dict[int, Any] = field(default_factory=dict)
    local_bytes: int = 0
    frame: FrameType | None = None
    """The kernel's own frame, once seen; it stays readable after the end."""
    barrier: Site | None = None
    """The barrier it waits at."""
    predicate: bool = False
    """What it brings to that barrier."""
    gathered: tuple[int, int] = (0, 0)
    """What the barrier gathered: threads whose predicate held, and threads that arrived."""
    meeting: Meeting | None = None
    """The warp operation it waits at."""
    passed_line: int = 0
    """The kernel's own line of the last barrier or warp operation that it went past."""
    step_parts: int = 0

    @property
    def warp(self) -> int:
        """Return the number of its warp in the block."""
        return self.linear // LANES

    def order(self) -> tuple[int, ...]:
        """Return numbers that sort threads by the loops they are in: place and iteration of each."""
        pairs = zip(self.loop_lines, self.loops, strict=True)
        return tuple(n for lines, iteration in pairs for n in (*lines, iteration))


class Strand:
    """Run one CUDA thread in a Python thread that moves only while `resume` waits for it."""

    def __init__(self, thread: Thread, body: Callable[[], None], tracer: Any = None) -> None:
        self.thread, self.done = thread, False
        self.error: BaseException | None = None
        self._body, self._tracer, self._cancelled = body, tracer, False
        self._go, self._back = _closed_gate(), _closed_gate()
        self._runner = threading.Thread(target=self._main, daemon=True, name=f"cuda thread {thread.tid}")

    def _main(self) -> None:
        self._go.acquire()
        try:
            if not self._cancelled:
                sys.settrace(self._tracer or None)
                with np.errstate(all="ignore"):
                    self._body()
        except Cancelled:
            pass
        except BaseException as error:  # handed to the thread that called resume
            self.error = error
        finally:
            sys.settrace(None)
            self.done = True
            _open(self._back)

    def resume(self) -> None:
        """Let it run to its next barrier or warp operation or its end; raise what it raised."""
        if self._runner.ident is None:
            self._runner.start()
        _open(self._go)
        self._back.acquire()
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        """Wait, called from the inside at a barrier or a warp operation, until the next `resume`."""
        _open(self._back)
        self._go.acquire()
        if self._cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """End it wherever it waits or, after a Ctrl-C that `resume` was interrupted by, runs.

        One that Python cannot end (it reads from the terminal) is left behind and ends when it goes on.
        """
        if self._runner.ident is None or self.done:
            return
        self._cancelled = True
        _open(self._go)
        self._runner.join(_WAITING_SECONDS)
        for _ in range(_TRIES):
            if not self._runner.is_alive():
                return
            _raise_in(self._runner.ident, Cancelled)
            self._runner.join(_TRY_SECONDS)


def _closed_gate() -> threading.Lock:
    """Return a taken lock, at which a thread waits until another one opens it.

    A semaphore of Python takes twice as long.
    """
    gate = threading.Lock()
    gate.acquire()
    return gate


def _open(gate: threading.Lock) -> None:
    """Let the thread at a gate pass, or the next one to come; after a Ctrl-C it may be open already."""
    if gate.locked():
        gate.release()


def _raise_in(ident: int, error: type[BaseException]) -> None:
    """Raise an exception in another Python thread, at the next bytecode that it runs."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


def _left_by_return(thread: Thread) -> bool:
    """Say whether an ended thread left by a return statement, not by the end of the kernel."""
    frame = thread.frame
    return frame is not None and frame.f_lineno in early_returns(frame.f_code.co_filename)


def bypassed(thread: Thread, line: int, passed_line: int) -> bool:
    """Say whether an ended thread went past the line at which others wait instead of returning before it.

    Lanes of a warp run in source order, so a return above the line comes first, one below it later. Where the
    line lies above `passed_line`, of the last place at which the thread waited, the others have gone around a
    loop and any return came first.
    """
    if thread.frame is None:
        return False
    around = line <= passed_line
    return not _left_by_return(thread) or (thread.frame.f_lineno > line and not around)


def line_of(strand: Strand) -> int:
    """Return the kernel's own line at which a waiting thread stands."""
    frame = strand.thread.frame
    return frame.f_lineno if frame is not None else 0


def _where(waiting: list[Strand], past: list[Strand]) -> Strand:
    """Pick the barrier to name: the first one of the lowest warp that is split, else the lowest warp's."""
    for warp in sorted({s.thread.warp for s in waiting}):
        members = [s for s in waiting if s.thread.warp == warp]
        split = len({s.thread.barrier for s in members}) > 1 or any(s.thread.warp == warp for s in past)
        if split:
            return min(members, key=line_of)
    return waiting[0]


def _is_past(thread: Thread, waiting_warps: set[int], line: int, passed_line: int) -> bool:
    """Say whether an ended thread went past a barrier, in a warp of which lanes wait or in another one."""
    if thread.warp in waiting_warps:
        return bypassed(thread, line, passed_line)
    return thread.frame is not None and not _left_by_return(thread)


def check_barrier(kernel: str, waiting: list[Strand], ended: list[Strand], region_line: int) -> int:
    """Raise BarrierDivergence unless all live threads wait at one barrier; return the kernel's line of it.

    ended: threads that have ended since the last barrier, which was at `region_line`. One that got to the
    end of the kernel is missing. One that returned is missing only if lanes of its warp wait and it did not
    return before them.
    """
    warps = {s.thread.warp for s in waiting}
    first = min(line_of(s) for s in waiting)
    past = [s for s in ended if _is_past(s.thread, warps, first, region_line)]
    named = _where(waiting, past)
    arrived = sum(s.thread.barrier == named.thread.barrier for s in waiting)
    missing = len(waiting) - arrived + len(past)
    if missing and named.thread.barrier is not None:
        site = named.thread.barrier
        raise barrier_divergence(kernel, named.thread.ctaid, arrived, missing, site.file, site.line)
    return first


@functools.cache
def early_returns(file: str) -> frozenset[int]:
    """Return the lines of a file's return statements but those that end a function; none without a source."""
    try:
        nodes = list(ast.walk(ast.parse("".join(linecache.getlines(file)))))
    except SyntaxError:
        return frozenset()
    last = [node.body[-1] for node in nodes if isinstance(node, ast.FunctionDef)]
    return frozenset(n.lineno for n in nodes if isinstance(n, ast.Return) and n not in last)


@functools.cache
def raise_lines(file: str) -> frozenset[int]:
    """Return the lines of a file's raise and assert statements; none without a source."""
    try:
        nodes = ast.walk(ast.parse("".join(linecache.getlines(file))))
    except SyntaxError:
        return frozenset()
    found = (n for n in nodes if isinstance(n, (ast.Raise, ast.Assert)))
    return frozenset(line for n in found for line in range(n.lineno, (n.end_lineno or n.lineno) + 1))
