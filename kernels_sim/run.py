"""Run a problem: its launches in order on one device, then its outputs against the float64 reference
(check.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

import numpy as np

from dsl.programs.arguments import bind, dimensions
from dsl.programs.target import load_kernel
from gpusim import facts
from gpusim.advice import differing
from gpusim.arch import Arch, get_arch
from gpusim.launch import Fact, Launch, Registers
from gpusim.memory import VirtualArray
from gpusim.reports import Reports
from kernels_sim import find
from kernels_sim.check import checks, largest_error
from kernels_sim.options import check_values
from kernels_sim.problem import Data, Problem, Step


def simulate(kernel: str, gpu: str = "h200", *, seed: int = 0, counts_only: bool = False,
             **options: Any) -> Reports:  # fmt: skip
    """Run a shipped kernel on a simulated GPU and return its launches, as the command line's simulate does.

    options: those of the kernel. Raise UnknownName for a name that is none, BadOption for a value.
    """
    from dsl.host.device import Device

    problem, said = shipped(kernel, seed, counts_only, options)
    return Reports(run_problem(problem, Device(get_arch(gpu)), counts_only=counts_only, options=said))


def shipped(kernel: str, seed: int, virtual: bool, values: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """Return the problem of a shipped kernel with these options, and all its options; raise UnknownName,
    BadOption."""
    spec = find(kernel)
    check_values(spec, values)
    given = values | ({"seed": seed} if "seed" in {f.name for f in fields(spec.options)} else {})
    options = spec.options(**given)
    return spec.build(options, Data(seed, virtual=virtual)), {"seed": seed, **asdict(options)}


def run_problem(
    problem: Problem,
    device: Any,
    registers: Registers | None = None,
    counts_only: bool = False,
    engine: str = "auto",
    max_steps: int | None = None,
    strict_index: bool = False,
    progress: Callable[..., None] | None = None,
    options: Any = None,
) -> list[Launch]:
    """Run the steps of a problem on a dsl.host.device.Device and return their launches, with closed forms,
    options and checks.

    registers: of every launch, if given; else each step's recorded ones, else the engine estimates. A device
    with warm L2 and a problem of one launch: an identical launch goes before it and is not counted. The
    checks of all outputs and the facts of the problem stand in the last launch.
    """
    settings = {
        "counts_only": counts_only,
        "engine": engine,
        "max_steps": max_steps,
        "strict_index": strict_index,
        "progress": progress,
    }
    usual = _in_usual_order(problem, device, settings) if _is_reordered(device, counts_only) else None
    warm = device.l2 == "warm" and engine != "oracle"  # the oracle has no caches
    with _resident(problem.steps, device) if warm else nullcontext(problem.steps) as steps:
        if warm and len(steps) == 1:
            _warm_up(steps[0], device, registers, settings)
        launches = [_launch(step, device, registers, settings) for step in steps]
    for launch, step in zip(launches, problem.steps, strict=True):
        launch.closed_form = {
            path: n for path, n in step.closed_form.items() if not (warm and _assumes_cold(path))
        }
        launch.options = _as_dict(options)
    if launches:
        said = map(_without_cold, problem.facts) if warm else problem.facts
        launches[-1].facts = facts.count(said, launches)
    if usual is not None:
        launches[-1].notes += (_moved(problem, usual, device.atomic_order),)
    if launches and problem.reference is not None and not counts_only:
        launches[-1].checks = checks(problem)
    return launches


def _launch(step: Step, device: Any, registers: Registers | None, settings: dict[str, Any]) -> Launch:
    from dsl.host.launch import launch

    taken = registers or recorded(step, device.arch)
    return launch(step.kernel, step.grid, step.block, step.args, device,
                  shared_bytes=step.shared_bytes, registers=taken, **settings)


def recorded(step: Step, arch: Arch) -> Registers | None:
    """Return the registers recorded for a launch, None if there are none; say so where the compiler's target
    is not the GPU's compute capability.
    """
    if step.registers is None:
        return None
    here = f"sm_{arch.compute_capability.replace('.', '')}"
    others = [target for target in re.findall(r"\bsm_\d+", step.registers_source) if target != here]
    source = f"recorded for {others[0]}" if others else "recorded"
    return Registers(step.registers, source, step.registers_source)


def _assumes_cold(path: str) -> bool:
    """Return whether a closed form is of traffic that depends on what the caches held before."""
    return path.startswith("hierarchy.") and path not in (
        "hierarchy.l2_write",
        "hierarchy.l2_red",
        "hierarchy.l2_atom",
    )


def _without_cold(fact: Fact) -> Fact:
    """Return a fact that is not held against counters of cold caches."""
    return replace(fact, counters={}, per=1) if any(map(_assumes_cold, fact.counters)) else fact


@contextmanager
def _resident(steps: tuple[Step, ...], device: Any) -> Iterator[tuple[Step, ...]]:
    """Give steps whose arrays lie on the device all the while, so that the next launch finds their lines in
    L2.

    A launch places a host array anew each time. The host arrays are up to date again at the end.
    """
    from dsl.host.device import DeviceArray

    mark, placed = device.memory.mark(), {}
    for array in (a for step in steps for a in step.args if _has_place(a)):
        if id(array) not in placed:
            placed[id(array)] = array, DeviceArray(device, array.shape, array.dtype)
            if isinstance(array, np.ndarray):
                placed[id(array)][1].copy_to_device(array)
    try:
        yield tuple(
            replace(step, args=tuple(placed[id(a)][1] if id(a) in placed else a for a in step.args))
            for step in steps
        )
        for host, resident in placed.values():
            if isinstance(host, np.ndarray):
                resident.copy_to_host(host)
    finally:
        device.memory.release(mark)


def _has_place(argument: Any) -> bool:
    """Return whether an argument is an array that can be copied to the device as a whole (no view with
    steps).
    """
    return (
        isinstance(argument, VirtualArray) or isinstance(argument, np.ndarray) and argument.flags.c_contiguous
    )


def _warm_up(step: Step, device: Any, registers: Registers | None, settings: dict[str, Any]) -> None:
    """Launch once for what it leaves in the caches, and put the arrays back as they were."""
    arrays = [a for a in step.args if hasattr(a, "shape") and not isinstance(a, (VirtualArray, np.generic))]
    before = [] if settings["counts_only"] else [np.array(a) for a in arrays]
    _launch(step, device, registers, settings)
    for array, content in zip(arrays, before, strict=False):
        array[...] = content


def _is_reordered(device: Any, counts_only: bool) -> bool:
    """Return whether blocks run in another order than that of their numbers, and values are computed."""
    return device.atomic_order is not None and not counts_only


def _in_usual_order(problem: Problem, device: Any, settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return a problem's outputs as the usual order of blocks gives them, and put its arrays back."""
    from dsl.host.device import Device

    arrays = {id(a): a for step in problem.steps for a in step.args if isinstance(a, np.ndarray)}
    before = {at: a.copy() for at, a in arrays.items()}
    plain = Device(device.arch, threads=device.threads)
    for step in problem.steps:
        _launch(step, plain, None, settings | {"progress": None})
    outputs = {name: np.array(x) for name, x in problem.outputs.items()}
    for at, a in arrays.items():
        a[...] = before[at]
    return outputs


def _moved(problem: Problem, usual: dict[str, np.ndarray], seed: int) -> str:
    """Say how far each output lies from what the usual order of blocks gives."""
    moved = {name: largest_error(problem.outputs[name], x) for name, x in usual.items()}
    said = ", ".join(f"{name} {far:.2g}" for name, far in moved.items())
    return (f"Atomic order {seed}, against blocks in the order of their numbers; relative to max(1, largest "
            f"element) an output moves by at most: {said}.")


def _as_dict(options: Any) -> dict[str, Any]:
    return asdict(options) if is_dataclass(options) and not isinstance(options, type) else dict(options or {})


def failed(launch: Launch) -> bool:
    """Return whether an output is further from its reference than its tolerance, or a counter not what the
    closed form or a fact of the algorithm says.
    """
    wrong = any(not check.error <= check.tolerance for check in launch.checks)
    return wrong or bool(differing(launch)) or any(map(facts.differs, launch.facts))


def problem_of_file(
    target: Any,
    grid: str,
    block: str,
    shared: int = 0,
    arg: Sequence[str] = (),
    seed: int = 0,
    virtual: bool = False,
) -> Problem:
    """Return one launch of a user's kernel, FILE.py:kernel or what was loaded from there, as a problem with
    no reference.

    Raise UserError for a mistake in it.
    """
    kernel = load_kernel(target) if isinstance(target, str) else target
    shape = dimensions(grid, "--grid"), dimensions(block, "--block")
    return Problem(
        kernel.py_func.__name__, (Step(kernel, *shape, bind(kernel, arg, seed, virtual), shared),), {}
    )
