"""The few numbers of a launch that one looks at first: what a notebook shows, and the top of a page.

Values, units and exact or modelled are those of the metric table. What it leaves out: everything else, which
the sections have (gpusim/sections.py).
"""

from __future__ import annotations

from gpusim import metrics
from gpusim.advice import differing
from gpusim.launch import Launch, is_counted
from gpusim.sections import Row, metrics_table
from gpusim.table import Table, counted

ALWAYS = (
    "sm__maximum_warps_per_active_cycle_pct",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sector_hit_rate.pct",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "gpusim__l2_dirty_bytes_end.sum",
)
WHERE_THERE_ARE_SOME = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "gpusim__shared_matrix_conflicts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "gpusim__fp16_flops.sum",
    "gpusim__fp32_flops.sum",
    "gpusim__fp64_flops.sum",
    "gpusim__tensor_flops.sum",
)
"""Metrics whose row is left out where they are 0; n/a is shown."""


def summary(launch: Launch) -> Table:
    """Return a row for each metric of the summary: label, unit, value, exact or modelled."""
    rows = [_row(launch, name) for name in ALWAYS]
    rows += [row for name in WHERE_THERE_ARE_SOME if (row := _row(launch, name))[2] != 0]
    return metrics_table(rows)


def _row(launch: Launch, name: str) -> Row:
    metric = metrics.find(name)
    return metric.label, metric.unit, metrics.value(launch, name), metrics.kind(launch, metric)


def verdicts(launch: Launch) -> tuple[str, ...]:
    """Return a sentence on the closed form and one on the result, where a launch has them."""
    said = []
    held = [path for path in launch.closed_form if is_counted(launch, path)]
    if held:
        wrong = differing(launch)
        end = f"; DIFFERENT: {', '.join(wrong)}." if wrong else "."
        said.append(f"{len(held) - len(wrong)} of {counted(len(held), 'counter')} equal the closed form{end}")
    if launch.checks:
        failed = [c.output for c in launch.checks if not c.error <= c.tolerance]
        end = f"; FAILED: {', '.join(failed)}." if failed else "."
        right = len(launch.checks) - len(failed)
        said.append(f"{right} of {counted(len(launch.checks), 'output')} within tolerance of the reference"
                    f"{end}")
    return tuple(said)
