"""The `while` and tuple loops of the Python oracle: a thread's lines are followed to see its iterations.

What it models: the iteration of each loop around a place that dsl/oracle/loops.py does not count: `while`,
and `for` over a tuple, which compiled code unrolls. Lanes of a warp meet in equal iterations, however many of
them skipped the place before. What it leaves out: a `while True` that begins with another loop, whose
iterations are taken for those of the inner one. Checked by no ncu metric; tests hold requests against the
compiled engine.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
from collections.abc import Set
from types import CodeType, FrameType
from typing import Any

from dsl.oracle.arrays import Recorder
from dsl.oracle.threads import FollowedLoop, OpenLoop, Thread

COUNTED = ("range", "zip", "enumerate")
"""What a `for` goes over by a stand-in that counts (dsl/oracle/loops.py)."""


def _followed(node: ast.AST) -> FollowedLoop | None:
    """Return the lines of a loop that is followed, None for any other node."""
    if isinstance(node, ast.While):
        once = node.body[0] if isinstance(node.test, ast.Constant) else node.test
        return FollowedLoop(once.lineno, node.lineno, node.end_lineno or node.lineno, True)
    if not isinstance(node, ast.For):
        return None
    called = node.iter.func if isinstance(node.iter, ast.Call) else None
    if isinstance(called, ast.Name) and called.id in COUNTED:
        return None
    return FollowedLoop(node.lineno, node.lineno, node.end_lineno or node.lineno, False)


@functools.cache
def followed_loops(file: str) -> dict[int, FollowedLoop] | None:
    """Map the line that runs once an iteration to each followed loop of a file; None without a source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    found = filter(None, map(_followed, ast.walk(tree)))
    return {loop.once: loop for loop in found} if tree.body else None


@functools.cache
def _loops_of(code: CodeType) -> dict[int, FollowedLoop] | None:
    """Return the followed loops of one function by line, None where there is no source."""
    loops = followed_loops(code.co_filename)
    if loops is None:
        return None
    lines = {line for *_, line in code.co_lines()}
    return {line: loop for line, loop in loops.items() if line in lines}


@functools.cache
def _line_starts(code: CodeType) -> frozenset[int]:
    """Return the offsets at which a line begins, or begins again: its first ones, and where loops jump back.

    Python 3.12 tells of a line once more in its middle, after a call of `__getitem__` that it has inlined.
    """
    jumps = (i for i in dis.get_instructions(code) if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs)
    back = {i.argval for i in jumps if i.argval <= i.offset}
    return frozenset(back.union(offset for offset, _ in dis.findlinestarts(code)))


class Iterations:
    """Be the trace function of a thread: tell the thread its iterations, and count steps of while loops.

    codes: the code of the kernel and of its device functions; others are not followed, nor are those among
    them that have no loop to follow.
    """

    def __init__(self, recorder: Recorder, codes: Set[CodeType]) -> None:
        self.recorder = recorder
        followed = [code for code in codes if _loops_of(code) != {}]
        # By their numbers: Python's hash of a code object reads all of it, and this is asked at each call.
        self._followed = {id(code): (_loops_of(code), _line_starts(code)) for code in followed}

    def __bool__(self) -> bool:
        """Say whether there is anything to follow."""
        return bool(self._followed)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Follow the lines of a function that has loops to follow (all lines where it has no source)."""
        return self._follow if id(frame.f_code) in self._followed else None

    def _follow(self, frame: FrameType, event: str, arg: Any) -> Any:
        thread, line = self.recorder.thread, frame.f_lineno
        loops, starts = self._followed[id(frame.f_code)]
        _leave(thread, frame, line if event == "line" else 0)
        if event == "line" and frame.f_lasti in starts:
            loop = loops.get(line) if loops is not None else None
            if loops is None or (loop is not None and loop.spins):
                self.recorder.step(frame.f_code.co_filename, line)
            if loop is not None:
                self._iterate(thread, frame, loop)
        return self._follow

    def _iterate(self, thread: Thread, frame: FrameType, loop: FollowedLoop) -> None:
        """Begin an iteration of a loop, its first one where the thread is not in it yet."""
        if thread.followed and thread.followed[-1].frame is frame and thread.followed[-1].loop == loop:
            thread.loops[thread.followed[-1].depth] += 1
            return
        thread.followed.append(OpenLoop(frame, loop, len(thread.loops)))
        thread.loops.append(0)
        thread.loop_lines.append(self.recorder.lines(frame))


def _leave(thread: Thread, frame: FrameType, line: int) -> None:
    """Close the followed loops of a function that do not hold a line (all of them for line 0)."""
    while thread.followed and thread.followed[-1].frame is frame:
        _, loop, depth = thread.followed[-1]
        if loop.first <= line <= loop.last:
            return
        thread.followed.pop()
        del thread.loops[depth:], thread.loop_lines[depth:]
