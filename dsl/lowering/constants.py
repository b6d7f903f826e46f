"""Constant memory: numpy arrays that a kernel finds in globals or closures, frozen when it is compiled.

What it models: numba.cuda puts such arrays, given to cuda.const.array_like or not, in the 64 KB of constant
memory. What it leaves out: the banks of parameters and of the driver; and that an element at a place known
when compiling is no load of its own in machine code. Which ncu metric checks it:
`smsp__inst_executed_op_ldc`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from dsl.lowering.values import Arr
from dsl.types.elements import Element, alignment_of, bytes_of, number_of
from dsl.warpir.ir import ConstantArray, Loc
from gpusim.errors import LaunchRefused

LIMIT_BYTES = 64 * 1024
"""Constant memory that the arrays of a kernel can have, of every compute capability (CUDA guide)."""


@dataclass
class Bank:
    """Place the constant arrays of one compilation: `at` is the first free byte."""

    at: int = 0
    found: dict[int, tuple[Arr, ConstantArray]] = field(default_factory=dict)
    """By the identity of the numpy array, which the kernel's function keeps alive."""

    def array(
        self, ary: np.ndarray, element: Element, name: str, taken: Collection[str], loc: Loc
    ) -> Arr:
        """Return the array that stands for a numpy array, placed when it is first met.

        Fortran order stays; other strides become C order, as in numba.
        """
        if id(ary) not in self.found:
            kept = ary if ary.flags.c_contiguous or ary.flags.f_contiguous else np.ascontiguousarray(ary)
            data, align = kept.tobytes("A"), alignment_of(element)
            names = {*taken, *(a.name for a, _ in self.found.values())}
            unlike = [name, *(f"{name}_{k}" for k in range(1, len(names) + 2))]
            own = next(n for n in unlike if n not in names)
            offset = -(-self.at // align) * align
            placed = ConstantArray(own, number_of(element), offset, data, loc, bytes_of(element))
            made = Arr(own, "const", element, kept.shape, kept.strides, offset)
            self.found[id(ary)], self.at = (made, placed), offset + len(data)
        return self.found[id(ary)][0]

    def used(self, kernel: str, names: Collection[str]) -> tuple[ConstantArray, ...]:
        """Return the arrays with these names; raise LaunchRefused for more bytes than the card has."""
        arrays = tuple(placed for _, placed in self.found.values() if placed.name in names)
        total = sum(len(a.data) for a in arrays)
        if total > LIMIT_BYTES:
            listed = ", ".join(f"{a.name} {len(a.data):,}" for a in arrays)
            place = f"{arrays[-1].loc.file}:{arrays[-1].loc.line}: in {kernel}"
            raise LaunchRefused(
                f"{place}: its constant arrays take {total:,} bytes ({listed}), the limit is "
                f"{LIMIT_BYTES:,}; pass the largest as an argument"
            )
        return arrays
