"""A launch that the Python oracle runs alone: of a kernel that the compiled engine does not take.

What it models: values, accesses and requests, as dsl/oracle/run.py. What it leaves out: all that follows from
WarpIR, and it is n/a in the report, never 0: arithmetic, caches, the registers of a thread unless they are
given, which local arrays live in registers, and requests for elements that the kernel language has no type
for. Checked by the metrics that dsl/oracle/run.py names.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsl.host.device import Device, DeviceArray, private_copies
from dsl.host.dispatcher import Dispatcher
from dsl.oracle import run as oracle
from dsl.oracle.printing import Line, in_order
from dsl.semantics.messages import Dim3, wrap_notes
from dsl.types import leaves
from gpusim.counters import Counters
from gpusim.errors import KernelFault, KernelMistake, UnsupportedFeature, UserError
from gpusim.launch import UNKNOWN, Launch, Registers
from gpusim.occupancy import check_launch, occupancy, opt_in_note

NOTE = "the Python oracle ran: accesses and requests are counted; arithmetic, L1, L2 and DRAM are not"
SPACES = {
    "global": ("global_load", "global_store", "global_red", "global_atom"),
    "shared": ("shared_load", "shared_store", "shared_atom"),
    "local": ("local_load", "local_store"),
}
"""The parts of Counters that count accesses to each space."""


@dataclass(frozen=True)
class SourceLaunch:
    """Describe a launch of a kernel's Python source; the fields are those of dsl.host.launch.launch."""

    kernel: Dispatcher
    grid: Dim3
    block: Dim3
    args: tuple[Any, ...]
    device: Device
    shared_bytes: int
    registers: Registers | None
    max_steps: int
    strict_index: bool


def run_source(launch: SourceLaunch, refusal: UnsupportedFeature) -> Launch:
    """Run a launch that the compiled engine refused.

    Arrays are changed in place, when it has ended well; what the kernel prints is
    printed when it has ended, also by a mistake or a Ctrl-C.

    Raises the refusal where the oracle has no answer either, and the mistakes that it finds in the kernel.
    """
    arch, name, registers = launch.device.arch, launch.kernel.__name__, _registers(launch)
    least = registers.per_thread or 1
    check_launch(arch, launch.grid, launch.block, 0, launch.shared_bytes, least, (), name)
    copies = private_copies(launch.args)
    printed: list[Line] = []
    try:
        run = oracle.run(
            launch.kernel.py_func, launch.grid, launch.block, copies, launch.shared_bytes, launch.max_steps,
            launch.strict_index, register_arrays=frozenset(), printed=printed, arch=arch,
            debug=bool(launch.kernel.options.get("debug")),
        )  # fmt: skip
    except UserError as error:
        raise (refusal if _has_no_answer(error) else error) from None
    finally:
        sys.stdout.write(in_order(printed))
    static, buffers = run.static_shared_bytes, run.shared_buffers
    check_launch(arch, launch.grid, launch.block, static, launch.shared_bytes, least, buffers, name)
    copy_back(launch.args, copies)
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    least = registers.per_thread or arch.min_registers
    opt_in = opt_in_note(arch, static, launch.shared_bytes)
    more = *wrap_notes(run.wraps), *_order_note(launch.device), *([opt_in] if opt_in else [])
    return Launch(
        kernel=name,
        grid=launch.grid,
        block=launch.block,
        arch=arch,
        registers=registers,
        static_shared_bytes=static,
        dynamic_shared_bytes=launch.shared_bytes,
        shared_buffers=buffers,
        occupancy=occupancy(arch, threads, least, static, launch.shared_bytes),
        counters=_without(run.counters, uncounted := _uncounted(run)),
        l2=launch.device.l2,
        engine="oracle",
        quantum_records=launch.device.quantum_records,
        notes=(f"not compiled: {refusal}", NOTE, *more),
        uncounted=uncounted,
    )


def _order_note(device: Device) -> tuple[str, ...]:
    """Return a sentence where an order of blocks was asked for, which this engine does not have."""
    return () if device.atomic_order is None else ("blocks ran in order: --atomic-order is the compiler's",)


def copy_back(args: tuple[Any, ...], copies: tuple[Any, ...]) -> None:
    """Write what a run left in the copies of arrays into the arrays themselves, but read-only ones."""
    for (_, host), (_, copy) in zip(leaves(args), leaves(copies), strict=True):
        if isinstance(host, DeviceArray) or (isinstance(host, np.ndarray) and host.flags.writeable):
            host[...] = copy


def _has_no_answer(error: UserError) -> bool:
    """Return whether the oracle too has no meaning for the kernel; else it found a mistake in it."""
    if isinstance(error, KernelFault):
        return not error.by_kernel
    return isinstance(error, UnsupportedFeature) and not isinstance(error, KernelMistake)


def _registers(launch: SourceLaunch) -> Registers:
    """Return the registers of a thread, where somebody gave them."""
    limit = launch.kernel.options.get("max_registers")
    if launch.registers is not None:
        return launch.registers
    if limit is not None:
        return Registers(int(limit), "given", "max_registers of cuda.jit")
    return Registers(0, UNKNOWN, "no WarpIR to estimate them from")


def _uncounted(run: oracle.OracleRun) -> tuple[str, ...]:
    """Return the parts of the counters that this run cannot answer for, beside those of every oracle run."""
    spaces = run.untyped_spaces | ({"local"} if run.has_local else set())
    return tuple(part for space in SPACES if space in spaces for part in SPACES[space])


def _without(counters: Counters, parts: tuple[str, ...]) -> Counters:
    """Return the counters with some parts at 0, as nobody counted them."""
    zero = Counters.zero()
    for part in parts:
        setattr(counters, part, getattr(zero, part))
    return counters
