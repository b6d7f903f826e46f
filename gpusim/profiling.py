"""`with gpusim.profile(gpu="h200") as p:` runs the body's kernels on a simulated GPU and keeps a report of
each launch.

    with gpusim.profile(gpu="h200") as p:
        kernel[grid, block](x, y)
    print(p.reports[0]["dram__bytes_read.sum"])

What it leaves out: running a kernel (dsl/host/launch.py reads the session that is in place, see
gpusim/session.py).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.launch import Registers
from gpusim.session import Filter, Session, use


class Profile:
    """Be the with statement's object: it puts a session in place once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._place: AbstractContextManager[Session] | None = None

    def __enter__(self) -> Session:
        """Put the session in place; raise BadOption for a second time, as its reports would mix."""
        if self._place is not None:
            raise BadOption("a gpusim.profile(...) object serves one with statement; call gpusim.profile() "
                            "again for another")
        self._place = use(self._session)
        return self._place.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> bool | None:
        """Put the session before it back."""
        return self._place.__exit__(kind, error, frames) if self._place is not None else None


def profile(
    gpu: str = "h200",
    l2: str = "cold",
    *,
    engine: str = "auto",
    counts_only: bool = False,
    registers: int | None = None,
    max_steps: int | None = None,
    strict_index: bool = False,
    kernel_name: str = "",
    launch_skip: int = 0,
    launch_count: int | None = None,
) -> Profile:
    """Simulate the launches in the body of a with statement.

    `reports` of the session holds one Launch each, in order.
    l2: "cold" empties the caches before each launch (as ncu does), "warm" leaves them as the previous one
    did. kernel_name, launch_skip, launch_count choose the launches that are reported, as ncu's options do.
    Raises UnknownName for the GPU, BadOption for a bad value.
    """
    if l2 not in ("cold", "warm"):
        raise BadOption(f"l2 is {l2!r}; it must be 'cold' or 'warm'")
    given = None if registers is None else Registers(registers, "given")
    session = Session(get_arch(gpu), l2, engine, counts_only, max_steps, strict_index, given,
                      Filter(kernel_name, launch_skip, launch_count))
    return Profile(session)
