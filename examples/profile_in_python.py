"""Profile a kernel from Python: launch it inside `gpusim.profile` and read metrics by their ncu names.

Run it with `PYTHONPATH=. python examples/profile_in_python.py`, and after `pip install -e .` with
`python examples/profile_in_python.py`. What to look at: a grid-stride loop reads every element
once, so the sectors of its loads are the bytes of x and y divided by 32, and no more.
"""

from __future__ import annotations

import numpy as np

import gpusim
from dsl import cuda


@cuda.jit
def axpy(a, x, y):
    """Add a * x to y in a grid-stride loop: any grid covers any length."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = a * x[i] + y[i]


def main() -> None:
    """Run the kernel once on a simulated H200 and print four of its counters."""
    n = 1_000_000
    x, y = np.ones(n, np.float32), np.zeros(n, np.float32)
    with gpusim.profile(gpu="h200") as p:
        axpy[132, 256](np.float32(2), x, y)
    assert (y == 2).all()
    for metric in (
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
        "dram__bytes_read.sum",
    ):
        print(f"{metric:55} {p.reports[0][metric]:>12,}")


if __name__ == "__main__":
    main()
