"""The compilations of a kernel as host code asks about them: `kernel.overloads`, under numba.cuda's names.

What it models: registers, shared and local memory, and the largest cooperative grid of one compilation. What
it leaves out: constants that a compiler adds. Registers are given (`max_registers`) or estimated from WarpIR,
never those of a compiler. Which ncu metric checks it: `launch__registers_per_thread`, as far as it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dsl.passes.needs import estimate_registers, register_arrays_of
from dsl.passes.ssa import build
from dsl.warpir import ir
from gpusim import session
from gpusim.arch import Arch
from gpusim.launch import Registers
from gpusim.occupancy import occupancy

Signature = tuple[Any, ...]
"""The numba types of a kernel's arguments."""


def registers_of(estimate: int, limit: Any, arch: Arch) -> Registers:
    """Return the registers of a thread: an estimate, cut to `max_registers` and to what the GPU has."""
    estimate = min(estimate, arch.max_registers_per_thread)
    if limit is not None and limit < estimate:
        return Registers(int(limit), "given", "max_registers of cuda.jit")
    return Registers(max(estimate, arch.min_registers), "estimated", "liveness of WarpIR, modelled")


@dataclass(frozen=True)
class Overload:
    """Be one compilation of a kernel, on the GPU of the current session."""

    fn: ir.Function
    max_registers: int | None
    cooperative = False

    @cached_property
    def _held(self) -> tuple[int, frozenset[str]]:
        """Return the estimate of registers, and the local arrays that live in them."""
        ssa = build(self.fn)
        arrays = register_arrays_of(ssa)
        return estimate_registers(ssa, arrays), arrays

    @property
    def regs_per_thread(self) -> int:
        """Return the registers of a thread."""
        return registers_of(self._held[0], self.max_registers, session.current().arch).per_thread

    @property
    def shared_mem_per_block(self) -> int:
        """Return the bytes of static shared memory of a block."""
        return self.fn.static_shared_bytes

    @property
    def const_mem_size(self) -> int:
        """Return the bytes of the kernel's arrays in constant memory."""
        return max((a.offset + len(a.data) for a in self.fn.constants), default=0)

    @property
    def local_mem_per_thread(self) -> int:
        """Return the bytes of the local arrays of a thread that do not live in registers."""
        return sum(a.bytes for a in self.fn.local if a.name not in self._held[1])

    @property
    def max_threads_per_block(self) -> int:
        """Return the threads of the largest block: what the GPU takes, and has registers for."""
        arch, warp = session.current().arch, session.current().arch.warp_size
        fits = [
            n for n in range(warp, arch.max_threads_per_block + 1, warp)
            if occupancy(arch, n, self.regs_per_thread, self.shared_mem_per_block, 0).blocks_per_sm
        ]  # fmt: skip
        return max(fits, default=0)

    def max_cooperative_grid_blocks(self, blockdim: int | tuple[int, ...], dynsmemsize: int = 0) -> int:
        """Return the blocks of this size that the whole GPU holds at once."""
        arch = session.current().arch
        threads = math.prod(blockdim) if isinstance(blockdim, tuple) else blockdim
        found = occupancy(arch, threads, self.regs_per_thread, self.shared_mem_per_block, dynsmemsize)
        return found.blocks_per_sm * arch.sm_count


class AsksOverloads:
    """Give a class with `overloads` and `specialized` numba.cuda's questions about them.

    Each takes a numba signature and answers for it; without one, a specialised kernel answers with a number,
    another with one for each of its overloads.
    """

    specialized: bool

    @property
    def overloads(self) -> dict[Signature, Overload]:
        """Return the compilations by the numba types of their arguments."""
        raise NotImplementedError

    def _asked(self, signature: Any, answer: Callable[[Overload], int]) -> int | dict[Signature, int]:
        if signature is not None:
            return answer(self.overloads[tuple(getattr(signature, "args", signature))])
        answers = {types: answer(overload) for types, overload in self.overloads.items()}
        return next(iter(answers.values())) if self.specialized else answers

    def get_regs_per_thread(self, signature: Any = None) -> int | dict[Signature, int]:
        """Return the registers of a thread."""
        return self._asked(signature, lambda o: o.regs_per_thread)

    def get_shared_mem_per_block(self, signature: Any = None) -> int | dict[Signature, int]:
        """Return the bytes of static shared memory of a block."""
        return self._asked(signature, lambda o: o.shared_mem_per_block)

    def get_local_mem_per_thread(self, signature: Any = None) -> int | dict[Signature, int]:
        """Return the bytes of local memory of a thread."""
        return self._asked(signature, lambda o: o.local_mem_per_thread)

    def get_const_mem_size(self, signature: Any = None) -> int | dict[Signature, int]:
        """Return the bytes of constant memory."""
        return self._asked(signature, lambda o: o.const_mem_size)

    def get_max_threads_per_block(self, signature: Any = None) -> int | dict[Signature, int]:
        """Return the threads of the largest block."""
        return self._asked(signature, lambda o: o.max_threads_per_block)
