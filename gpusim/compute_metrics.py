"""The metrics of arithmetic and of the roofline; and those of time that the estimate does not tell, n/a.

FLOPs follow from the thread instructions of each class. The roofline is the data sheet's peak over the
modelled DRAM bytes: a bound, not a prediction. What it leaves out: issue slots, stalls, tensor cores
(gpusim/tensor_metrics.py), what the time estimate tells (gpusim/time_metrics.py).
"""

from __future__ import annotations

from gpusim.launch import Launch
from gpusim.metric import EXACT, MODELLED, UNAVAILABLE, Formula, Metric, Value, arithmetic, ratio

COMPUTE, ROOFLINE, SPEED, INSTRUCTIONS = (
    "ComputeWorkloadAnalysis", "SpeedOfLight_RooflineChart", "SpeedOfLight", "InstructionStats")
CLASSES = (
    ("fadd", "32-bit additions"), ("fmul", "32-bit multiplications"), ("ffma", "32-bit fused multiply-adds"),
    ("dadd", "64-bit additions"), ("dmul", "64-bit multiplications"), ("dfma", "64-bit fused multiply-adds"),
    ("hadd", "16-bit additions and conversions to 32 bits"), ("hmul", "16-bit multiplications"),
    ("hfma", "16-bit fused multiply-adds"))
NO_TIME = "It needs more of a model of time than docs/time_estimate.md has."
NO_SUCH_INSTRUCTION = "The kernel language has no such instruction, so nothing was counted."
NO_MACHINE_CODE = "It needs the kernel's machine code, which this simulator does not have."


def fp32_flops(launch: Launch) -> int:
    """Return the 32-bit FLOPs: two for an FFMA, one for an FADD or FMUL."""
    a = launch.counters.arithmetic
    return 2 * a.ffma + a.fadd + a.fmul


def fp64_flops(launch: Launch) -> int:
    """Return the 64-bit FLOPs: two for a DFMA, one for a DADD or DMUL."""
    a = launch.counters.arithmetic
    return 2 * a.dfma + a.dadd + a.dmul


def fp16_flops(launch: Launch) -> int:
    """Return the 16-bit FLOPs: two for an HFMA, one for an HADD or HMUL, each of one number a lane."""
    a = launch.counters.arithmetic
    return 2 * a.hfma + a.hadd + a.hmul


def hadds(launch: Launch) -> int:
    """Return the HADD2 of additions and of conversions from float16 to float32."""
    a = launch.counters.arithmetic
    return a.hadd + a.hadd_cvt


def dram_bytes(launch: Launch) -> int:
    """Return the bytes read from and written to DRAM, code and others' dirty lines included."""
    return launch.counters.hierarchy.dram_bytes


def _classes() -> list[Metric]:
    fused = "Write a * b + c, which contracts into one fused multiply-add."
    return [
        Metric(
            f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum", "inst", COMPUTE,
            f"{op.upper()} Thread Instructions", EXACT, hadds if op == "hadd" else arithmetic(op),
            f"Thread instructions: {words}, those of exp, log and division included.", "active lanes",
            "It does not count lanes that are masked off.", "" if op.endswith("fma") else fused)
        for op, words in CLASSES
    ]


def _flops() -> list[Metric]:
    return [
        Metric(
            "gpusim__fp32_flops.sum", "FLOP", COMPUTE, "FP32 FLOPs", EXACT, fp32_flops,
            "Floating-point operations in 32 bits.", "2 * FFMA + FADD + FMUL",
            "It does not count minimum, maximum, comparison, conversion or special functions."),
        Metric(
            "gpusim__fp64_flops.sum", "FLOP", COMPUTE, "FP64 FLOPs", EXACT, fp64_flops,
            "Floating-point operations in 64 bits.", "2 * DFMA + DADD + DMUL",
            "It does not count minimum, maximum, comparison or conversion.",
            "A float64 literal or an int / int makes an expression 64-bit: wrap it in float32()."),
        Metric(
            "gpusim__fp16_flops.sum", "FLOP", COMPUTE, "FP16 FLOPs", EXACT, fp16_flops,
            "Floating-point operations of float16 and bfloat16.", "2 * HFMA + HADD + HMUL",
            "It does not count minimum, maximum, comparison, conversion or tensor cores; ncu's roofline "
            "takes each instruction for a packed pair, which the language does not have."),
        Metric(
            "smsp__inst_executed_pipe_xu.sum", "inst", COMPUTE, "XU Pipe Instructions", MODELLED,
            arithmetic("xu_warps"),
            "Warp instructions of the special function pipe: exp2, log2, reciprocals, roots, conversions.",
            "one a warp with an active lane", "Which conversions go there is the compiler's choice.",
            "exp2 needs no multiplication before it, exp does."),
        Metric(
            "gpusim__mufu_lanes.sum", "inst", COMPUTE, "MUFU Thread Instructions", EXACT, arithmetic("mufu"),
            "Thread instructions of the special function unit.", "active lanes",
            "It does not count masked lanes or conversions."),
        Metric(
            "gpusim__integer_lanes.sum", "inst", COMPUTE, "Integer Thread Instructions", MODELLED,
            arithmetic("integer"),
            "Integer, comparison, selection and conversion operations of the kernel's IR.", "active lanes",
            "The machine code has others: compilers fold addresses and unroll loops."),
        Metric(
            "gpusim__barrier_warps.sum", "warp", INSTRUCTIONS, "Warps At Barriers", EXACT,
            lambda x: x.counters.barriers, "Warps that pass a barrier, once each time.",
            "warps of a block * barriers, summed over blocks", "It does not count warps that have ended.",
            "Fewer, larger tiles need fewer barriers."),
        Metric(
            "gpusim__wrapped_indices.sum", "thread", INSTRUCTIONS, "Wrapped Negative Indices", EXACT,
            lambda x: x.counters.wrapped_indices,
            "Lanes whose negative index counted from the end of the array.", "active lanes",
            "It does not count unsigned indices.",
            "Use --strict-index to make each an error with its source line."),
    ]


def _roof(name: str, label: str, flops: Formula, peak: str) -> list[Metric]:
    def intensity(launch: Launch) -> Value:
        done = flops(launch)
        return ratio(done, dram_bytes(launch)) if done else None

    def ridge(launch: Launch) -> float:
        return float(getattr(launch.arch, peak)) / launch.arch.dram_bytes_per_second

    def attainable(launch: Launch) -> Value:
        found = intensity(launch)
        return None if found is None else min(100.0, 100.0 * found / ridge(launch))

    return [
        Metric(
            f"gpusim__arithmetic_intensity_dram_{name}.ratio", "FLOP/byte", ROOFLINE,
            f"{label} Arithmetic Intensity", MODELLED, intensity, f"{label} FLOPs for each byte of DRAM.",
            "FLOPs / dram__bytes.sum", "It does not count traffic that L2 serves.",
            "Reuse data in registers and shared memory."),
        Metric(
            f"gpusim__roofline_ridge_{name}.ratio", "FLOP/byte", ROOFLINE, f"{label} Ridge Point", MODELLED,
            ridge, f"Intensity from which {label} arithmetic, not DRAM, is the bound.",
            "peak FLOP/s / peak bytes/s, data sheet numbers", "Sustained peaks are lower."),
        Metric(
            f"gpusim__roofline_attainable_{name}.pct", "%", ROOFLINE, f"{label} Peak Attainable", MODELLED,
            attainable, f"The part of the {label} peak that DRAM allows.",
            "min(100, 100 * intensity / ridge)", "It is a bound, not a prediction."),
    ]


def _unavailable(rows: list[tuple[str, str, str, str]], why: str) -> list[Metric]:
    return [
        Metric(name, unit, section, label, UNAVAILABLE, None, f"{label}.", excludes=why)
        for name, unit, section, label in rows
    ]


def _time() -> list[Metric]:
    return _unavailable(
        [
            ("dram__cycles_elapsed.avg.per_second", "hz", SPEED, "DRAM Frequency"),
            ("smsp__cycles_elapsed.avg.per_second", "hz", SPEED, "SM Frequency"),
            (
                "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%", SPEED,
                "Memory Throughput"),
            ("l1tex__throughput.avg.pct_of_peak_sustained_active", "%", SPEED, "L1/TEX Cache Throughput"),
            ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "%", SPEED, "L2 Cache Throughput"),
            ("sm__cycles_active.avg", "cycle", SPEED, "SM Active Cycles"),
            ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", SPEED, "Compute (SM) Throughput"),
        ],
        NO_TIME,
    )


def _not_in_the_language() -> list[Metric]:
    tensor = [
        (f"sm__ops_path_tensor_src_{source}.sum", "", COMPUTE, f"Tensor Operations, {source}")
        for source in ("fp8", "fp64", "int8")
    ]
    return _unavailable(tensor, NO_SUCH_INSTRUCTION)


def _machine_code() -> list[Metric]:
    return _unavailable(
        [
            ("smsp__inst_executed.sum", "inst", INSTRUCTIONS, "Executed Instructions"),
            ("smsp__thread_inst_executed.sum", "inst", INSTRUCTIONS, "Executed Thread Instructions"),
            (
                "smsp__thread_inst_executed_pred_on.sum", "inst", INSTRUCTIONS,
                "Executed Thread Instructions, Not Masked"),
        ],
        NO_MACHINE_CODE,
    )


METRICS: tuple[Metric, ...] = (
    *_time(), *_roof("fp32", "FP32", fp32_flops, "fp32_flops_per_second"),
    *_roof("fp64", "FP64", fp64_flops, "fp64_flops_per_second"), *_classes(), *_flops(),
    *_not_in_the_language(), *_machine_code())
