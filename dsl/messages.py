"""The messages of mistakes that show while a kernel runs: what, where, the limit, what to do.

Both oracles and the engine build their errors here, so that one mistake reads the same whoever finds it.
"""

from __future__ import annotations

from gpusim.errors import BarrierDivergence, EndlessLoop, OutOfBounds

Dim3 = tuple[int, int, int]


def dim3(size: int | tuple[int, ...]) -> Dim3:
    """Fill a grid or block size up with ones to (x, y, z)."""
    x, y, z = (*((size,) if isinstance(size, int) else size), 1, 1)[:3]
    return int(x), int(y), int(z)


def unlinear(index: int, size: Dim3) -> Dim3:
    """Return (x, y, z) of a linear number x + X * (y + Y * z)."""
    return index % size[0], index // size[0] % size[1], index // (size[0] * size[1])


def linear_count(size: Dim3) -> int:
    """Return how many blocks (threads) a size has."""
    return size[0] * size[1] * size[2]


def out_of_bounds(
    kernel: str,
    array: str,
    dim: int,
    index: int,
    extent: int,
    block: Dim3,
    thread: Dim3,
    file: str,
    line: int,
    strict: bool = False,
) -> OutOfBounds:
    """Say which thread used which index of which array; strict: negative indices are errors too."""
    where = f"kernel {kernel}, block {block}, thread {thread}, {file}:{line}"
    axis = f"index {index} in dimension {dim} of {array!r} is out of bounds: the extent is {extent}"
    if strict and -extent <= index < 0:
        advice = (
            f"a negative index wraps to {index + extent}, and --strict-index makes that an error; "
            f"use indices of 0 to {extent - 1}"
        )
    elif index < 0:
        advice = f"a negative index wraps once, from {-extent} on; check the index expression"
    else:
        advice = f"guard the access, as in `if i < {array}.shape[{dim}]:`"
    return OutOfBounds(f"{where}: {axis}; {advice}")


def outside_memory(
    kernel: str,
    space: str,
    array: str,
    address: int,
    limit: int,
    block: Dim3,
    thread: Dim3,
    file: str,
    line: int,
) -> OutOfBounds:
    """Say which thread used an address that its space does not have (an index that nobody checked)."""
    return OutOfBounds(
        f"kernel {kernel}, block {block}, thread {thread}, {file}:{line}: address {address} of {array!r} is "
        f"outside {space} memory ({limit} bytes); check the index expression"
    )


def barrier_divergence(
    kernel: str, block: Dim3, arrived: int, missing: int, file: str, line: int
) -> BarrierDivergence:
    """Say at which barrier how many threads wait and how many are elsewhere; exited ones are neither."""
    return BarrierDivergence(
        f"kernel {kernel}, block {block}, {file}:{line}: barrier divergence, {arrived} threads arrived and "
        f"{missing} are missing; every thread of the block that has not returned must reach the same "
        "syncthreads(): move it out of the branch or loop that some threads skip"
    )


def endless_loop(kernel: str, block: Dim3, who: str, steps: int, file: str, line: int) -> EndlessLoop:
    """Say which warp or thread took more steps than it may."""
    return EndlessLoop(
        f"kernel {kernel}, block {block}, {who}, {file}:{line}: no end after {steps} steps; "
        "check the condition of the loop, or raise --max-steps"
    )
