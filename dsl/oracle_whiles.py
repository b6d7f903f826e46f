"""The `while` loops of the Python oracle: the lines of a thread are followed to see which iteration it is in.

What it models: the iteration of each `while` loop around a place, as dsl/oracle_loops.py gives that of `for`
loops: lanes of a warp meet in equal iterations, however many of them skipped the place before. What it leaves
out: a `while True` that begins with another loop, whose iterations are taken for those of the inner one.
Checked by no ncu metric; tests hold requests against the compiled engine.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Set
from types import CodeType, FrameType
from typing import Any

from dsl.oracle_arrays import Recorder
from dsl.oracle_threads import OpenWhile, Thread, WhileLoop


@functools.cache
def while_loops(file: str) -> dict[int, WhileLoop] | None:
    """Map the line that runs once an iteration to each while loop of a file; None without a source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.While):
            begin = node.body[0] if isinstance(node.test, ast.Constant) else node.test
            found[begin.lineno] = WhileLoop(begin.lineno, node.lineno, node.end_lineno or node.lineno)
    return found if tree.body else None


@functools.cache
def _loops_of(code: CodeType) -> dict[int, WhileLoop] | None:
    """Return the while loops of one function by line, None where there is no source."""
    loops = while_loops(code.co_filename)
    if loops is None:
        return None
    lines = {line for *_, line in code.co_lines()}
    return {line: loop for line, loop in loops.items() if line in lines}


class Whiles:
    """Be the trace function of a thread: count steps of while loops and tell the thread its iterations.

    codes: the code of the kernel and of its device functions; others are not followed.
    """

    def __init__(self, recorder: Recorder, codes: Set[CodeType]) -> None:
        self.recorder, self.codes = recorder, codes

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Follow the lines of a function that has while loops (all lines where its source is not there)."""
        if frame.f_code not in self.codes or _loops_of(frame.f_code) == {}:
            return None
        return self._follow

    def _follow(self, frame: FrameType, event: str, arg: Any) -> Any:
        thread, loops = self.recorder.thread, _loops_of(frame.f_code)
        _leave(thread, frame, frame.f_lineno if event == "line" else 0)
        if event == "line" and (loops is None or frame.f_lineno in loops):
            self.recorder.step(frame.f_code.co_filename, frame.f_lineno)
            if loops is not None:
                self._iterate(thread, frame, loops[frame.f_lineno])
        return self._follow

    def _iterate(self, thread: Thread, frame: FrameType, loop: WhileLoop) -> None:
        """Begin an iteration of a loop, its first one where the thread is not in it yet."""
        if thread.whiles and thread.whiles[-1].frame is frame and thread.whiles[-1].loop == loop:
            thread.loops[thread.whiles[-1].depth] += 1
            return
        thread.whiles.append(OpenWhile(frame, loop, len(thread.loops)))
        thread.loops.append(0)
        thread.loop_lines.append(self.recorder.lines(frame))


def _leave(thread: Thread, frame: FrameType, line: int) -> None:
    """Close the while loops of a function that do not hold a line (all of them for line 0)."""
    while thread.whiles and thread.whiles[-1].frame is frame:
        _, loop, depth = thread.whiles[-1]
        if loop.first <= line <= loop.last:
            return
        thread.whiles.pop()
        del thread.loops[depth:], thread.loop_lines[depth:]
