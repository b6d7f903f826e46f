"""The metrics that a measurement asks ncu for: one fixed list, in groups that say what each is for."""

from __future__ import annotations

GLOBAL = "pipe_lsu_mem_global_op_"
LTS = "lts__t_sectors"
SASS = "smsp__sass_thread_inst_executed_op_"


def _launch() -> list[str]:
    shapes = [f"{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"]
    limits = [f"occupancy_limit_{what}" for what in ("blocks", "registers", "shared_mem", "warps")]
    shared = [f"shared_mem_{what}" for what in (
        "config_size", "per_block", "per_block_allocated", "per_block_driver", "per_block_dynamic",
        "per_block_static")]
    others = ["grid_size", "block_size", "registers_per_thread", "registers_per_thread_allocated", "sm_count",
              "waves_per_multiprocessor"]
    names = [f"launch__{name}" for name in (*shapes, *limits, *shared, *others)]
    return [*names, "sm__maximum_warps_per_active_cycle_pct",
            "sm__warps_active.avg.pct_of_peak_sustained_active"]


def _l1() -> list[str]:
    moved = [f"l1tex__t_{what}_{GLOBAL}{op}.sum" for what in ("requests", "sectors")
             for op in ("ld", "st", "red", "atom")]
    hits = [f"l1tex__t_sectors_{GLOBAL}ld_lookup_{what}.sum" for what in ("hit", "miss")]
    local = [f"l1tex__t_{what}_pipe_lsu_mem_local_op_{op}.sum" for what in ("requests", "sectors")
             for op in ("ld", "st")]
    return [*moved, *hits, f"l1tex__t_sectors_{GLOBAL}ldgsts_cache_access.sum", *local]


def _shared() -> list[str]:
    kinds = ("data_pipe_lsu_wavefronts", "data_bank_conflicts_pipe_lsu")
    return [f"l1tex__{kind}_mem_shared_op_{op}.sum" for kind in kinds for op in ("ld", "st", "atom")]


def _l2_and_dram() -> list[str]:
    tex = [f"{LTS}_srcunit_tex{what}.sum" for what in ("", "_op_read", "_op_write", "_lookup_hit",
                                                       "_lookup_miss")]
    both = [f"{LTS}{what}.sum" for what in ("", "_op_read", "_op_write", "_op_red", "_op_atom", "_lookup_hit",
                                            "_lookup_miss", "_srcunit_ltcfabric")]
    dram = [f"dram__{what}.sum" for what in ("bytes_read", "bytes_write", "sectors_read", "sectors_write")]
    return [*tex, *both, "lts__t_requests_srcunit_tex.sum", "lts__t_sector_hit_rate.pct",
            "lrc__average_xbar2gpc_sectors_op_read.ratio", *dram]


def _instructions() -> list[str]:
    lanes = [f"{SASS}{op}_pred_on.sum" for op in (
        "ffma", "fmul", "fadd", "dfma", "dmul", "dadd", "hfma", "hmul", "hadd")]
    warps = [f"smsp__inst_executed_op_{op}.sum" for op in (
        "global_ld", "global_st", "global_red", "shared_ld", "shared_st", "shared_atom", "ldgsts", "ldsm",
        "ldc")]
    tensor = [f"sm__ops_path_tensor_src_{src}.sum" for src in ("fp16", "bf16_dst_fp32", "tf32_dst_fp32")]
    return [*lanes, *warps, "smsp__inst_executed.sum", "smsp__thread_inst_executed.sum",
            "smsp__thread_inst_executed_pred_on.sum", "smsp__inst_executed_pipe_xu.sum",
            "sm__inst_executed_pipe_tensor.sum", "sm__inst_executed_pipe_tensor_op_hmma.sum", *tensor]


METRICS: tuple[str, ...] = (
    *_launch(), *_l1(), *_shared(), *_l2_and_dram(), *_instructions(), "gpu__time_duration.sum",
    "sm__cycles_elapsed.max", "sm__cycles_active.avg")
"""All of them were taken by ncu 2025.3 on an H200."""
WHERE_KNOWN: tuple[str, ...] = (
    "sm__ops_path_tensor_src_fp8.sum", "sm__ops_path_tensor_src_fp8_dst_fp32.sum",
    "sm__ops_path_tensor_src_fp16_dst_fp32.sum", "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "lts__t_sectors_srcunit_tex_op_red.sum", "lts__t_sectors_srcunit_tex_op_atom.sum")
"""Asked for where `ncu --query-metrics` has them."""
