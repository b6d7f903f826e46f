"""Which measured launches stand beside simulated ones: those whose kernel has the name that comes nearest.

The very name comes before a signature (`void vec_add(float *)`), and that before a mangled name that holds
it. What it leaves out: which of several launches of one name belong together; they are paired in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpusim.errors import BadOption
from gpusim.launch import Launch
from gpusim.measured import Measured
from gpusim.table import counted


def closeness(kernel: str, measured: str) -> int:
    """Return how near a measured name comes to a kernel's: 3 the same, 2 a word of it, 1 a part, 0 not."""
    if kernel == measured:
        return 3
    return 2 if re.search(rf"(?<!\w){re.escape(kernel)}(?!\w)", measured) else int(kernel in measured)


def partners(
    launches: Sequence[Launch], measured: Sequence[Measured], kernel: str = ""
) -> Sequence[Measured]:
    """Return the measured launches whose name comes nearest to that of a simulated one, or all if none is
    near; raise BadOption where either side is empty.

    kernel: what was simulated. Where the file says that it was measured from that, whatever its launches are
    called there, all are taken.
    """
    if not launches or not measured:
        raise BadOption("there is nothing to compare: a file holds no launch")
    if _measured_from(kernel, measured):
        return measured
    kernels = list(dict.fromkeys(x.kernel for x in launches))
    best = {k: max(closeness(k, m.kernel) for m in measured) for k in kernels}
    near = [m for m in measured if any(best[k] and closeness(k, m.kernel) == best[k] for k in kernels)]
    return near or measured


def _measured_from(kernel: str, cards: Sequence[Measured]) -> bool:
    return bool(kernel) and all(m.header.get("kernel") == kernel for m in cards)


def pairing_notes(launches: Sequence[Launch], cards: Sequence[Measured], kernel: str = "") -> Iterator[str]:
    """Yield a sentence for names that no measured launch has, and for numbers of launches that differ."""
    strangers = dict.fromkeys(
        x.kernel for x in launches if not any(closeness(x.kernel, m.kernel) for m in cards))
    if strangers and not _measured_from(kernel, cards):
        yield f"no launch named {_listed(strangers)}; compared with {_listed(m.kernel for m in cards)}."
    if len(cards) != len(launches):
        yield (f"{counted(len(launches), 'launch')} simulated and {counted(len(cards), 'launch')} measured: "
               "they are paired in order.")


def _listed(names: Iterator[str] | dict[str, None], most: int = 5) -> str:
    own = [name or "(no name)" for name in dict.fromkeys(names)]
    more = f" and {len(own) - most} more" if len(own) > most else ""
    return ", ".join(own[:most]) + more
