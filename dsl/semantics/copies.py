"""The asynchronous copies of one block that are under way, for both oracles: who wrote which word, and when.

What it models: PTX's groups: a copy belongs to the group its thread commits next; waiting completes all but
the last few groups that a thread has committed. Until then the words of a copy may not be touched by anyone.
What it leaves out: data, which arrive at once, and races between threads after the wait (a barrier is theirs
to put). Checked by no ncu metric; dsl/llvm/copies.py does the same in machine code.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

WORD_BYTES = 4


class Mark(NamedTuple):
    """Say which thread's group, by which line, brings a word."""

    thread: int
    group: int
    file: str
    line: int


@dataclass
class Copies:
    """Hold the marks of the words of shared memory, and the groups each thread has committed and awaited."""

    marks: dict[int, Mark] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    completed: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def issue(self, thread: int, address: int, nbytes: int, file: str, line: int) -> None:
        """Mark the words of a copy to `address`."""
        mark = Mark(thread, self.committed[thread] + 1, file, line)
        for word in range(address // WORD_BYTES, (address + nbytes) // WORD_BYTES):
            self.marks[word] = mark

    def commit(self, thread: int) -> None:
        """Close the thread's present group."""
        self.committed[thread] += 1

    def wait(self, thread: int, pending: int) -> None:
        """Complete all but the last `pending` groups that the thread has committed."""
        self.completed[thread] = max(self.completed[thread], self.committed[thread] - pending)

    def blocking(self, address: int, nbytes: int) -> Mark | None:
        """Return the first mark among some bytes that its thread has not waited for."""
        for word in range(address // WORD_BYTES, -(-(address + nbytes) // WORD_BYTES)):
            mark = self.marks.get(word)
            if mark is not None and mark.group > self.completed[mark.thread]:
                return mark
        return None
