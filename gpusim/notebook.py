"""`%load_ext gpusim` in a notebook: a cell that begins with `%%gpusim` shows the report of its launches.

    %%gpusim h100 warm
    kernel[grid, block](x, y)

What it leaves out: running a kernel, and what a report looks like (gpusim/report_html.py).
"""

from __future__ import annotations

from typing import Any

from gpusim.errors import BadOption
from gpusim.profiling import profile

CACHES = ("cold", "warm")


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook the cell magic %%gpusim; IPython calls it for `%load_ext gpusim`."""
    shell.register_magic_function(lambda line, cell: profiled(shell, line, cell), "cell", "gpusim")


def profiled(shell: Any, line: str, cell: str) -> None:
    """Run a cell on the GPU that its first line names (h200 where it names none) and show its launches.

    A launch before a mistake is shown all the same. Raise UnknownName and BadOption for the line.
    """
    gpu, l2 = asked(line)
    with profile(gpu, l2) as session:
        done = shell.run_cell(cell)
    if session.reports or done.success:
        from IPython.display import display

        display(session.reports)


def asked(line: str) -> tuple[str, str]:
    """Return GPU and caches of a line such as "h100 warm", in any order; raise BadOption for a third word."""
    words = line.split()
    l2 = next((word for word in words if word in CACHES), "cold")
    gpus = [word for word in words if word not in CACHES]
    if len(gpus) > 1 or len(words) > 2:
        raise BadOption(f"%%gpusim takes a GPU and cold or warm, not {line.strip()!r}")
    return (gpus or ["h200"])[0], l2
