"""The metrics of the tensor cores: instructions and operations by type, from the mma.sync of the source.

An m16n8k16 of f16 or bf16 is one HMMA and 4,096 operations (2 M N K), an m16n8k8 of tf32 one and 2,048. sm_90
has no tensor instruction for fp8 in mma.sync: an m16n8k32 is two HMMA of f16 (h200 facts 34 and 35). What it
leaves out: wgmma, integers, sparse products; packed f16 arithmetic, which the card runs on that pipe too.
"""

from __future__ import annotations

from gpusim.counters import Tensor
from gpusim.launch import Launch
from gpusim.metric import EXACT, MODELLED, Formula, Metric

COMPUTE = "ComputeWorkloadAnalysis"
FLOPS = {"f16": 4096, "bf16": 4096, "tf32": 2048, "fp8": 8192}
"""FLOPs of one mma by the type of its narrow operands, a field of counters.Tensor: 2 M N K."""
HMMA = {"f16": 1, "bf16": 1, "tf32": 1, "fp8": 2}
"""Tensor instructions that sm_90 makes of one mma."""
SHAPES = {"f16": "m16n8k16", "bf16": "m16n8k16", "tf32": "m16n8k8", "fp8": "m16n8k32"}
PIPE_NOTE = (
    "The card also counts packed f16 arithmetic (HFMA2) there, which compilers use in kernels without any "
    "tensor work.")


def tensor_flops(counts: Tensor) -> int:
    """Return the FLOPs of the tensor cores: 2 M N K of each instruction."""
    return sum(each * int(getattr(counts, name)) for name, each in FLOPS.items())


def _hmma(launch: Launch) -> int:
    return sum(each * int(getattr(launch.counters.tensor, name)) for name, each in HMMA.items())


def _operations(*names: str) -> Formula:
    return lambda launch: sum(FLOPS[n] * int(getattr(launch.counters.tensor, n)) for n in names)


def _instructions(name: str) -> Formula:
    return lambda launch: int(getattr(launch.counters.tensor, name))


def _pipe(name: str, label: str) -> Metric:
    return Metric(
        name, "inst", COMPUTE, label, MODELLED, _hmma, "Warp instructions of the tensor cores.",
        "one an mma.sync, two for fp8", PIPE_NOTE)


def _ops(source: str, *names: str) -> Metric:
    return Metric(
        f"sm__ops_path_tensor_src_{source}.sum", "op", COMPUTE,
        f"Tensor Operations, {source.replace('_dst_', ' To ')}", EXACT, _operations(*names),
        f"Operations of tensor instructions whose operands are {source.partition('_')[0]}.",
        "2 M N K an instruction, " + ", ".join(f"{FLOPS[n]:,} for {SHAPES[n]}" for n in names),
        "fp8 counts as fp16 on sm_90; HFMA2 does not." if source == "fp16" else "It does not count wgmma.")


def _by_type(name: str) -> Metric:
    return Metric(
        f"gpusim__mma_{name}.sum", "inst", COMPUTE, f"Matrix Instructions, {name}", EXACT,
        _instructions(name), f"mma.sync.{SHAPES[name]} instructions of warps.", "one a warp",
        "It does not count what machine code makes of them.")


METRICS: tuple[Metric, ...] = (
    Metric(
        "gpusim__tensor_flops.sum", "FLOP", COMPUTE, "Tensor FLOPs", EXACT,
        lambda launch: tensor_flops(launch.counters.tensor), "Floating-point operations of the tensor cores.",
        "2 M N K of each mma.sync", "It does not count padding apart from the rest."),
    *map(_by_type, FLOPS),
    _pipe("sm__inst_executed_pipe_tensor.sum", "Tensor Pipe Instructions"),
    _pipe("sm__inst_executed_pipe_tensor_op_hmma.sum", "Tensor Pipe HMMA Instructions"),
    _ops("fp16", "f16", "fp8"), _ops("bf16_dst_fp32", "bf16"), _ops("tf32_dst_fp32", "tf32"),
)
