"""FlashAttention's own table, figure 2 (left) of Dao et al. 2022 (arXiv 2205.14135), counted again.

The paper takes the attention of GPT-2 medium, forward and backward, N = 1024, d = 64, 16 heads, batch 64, on
an A100, and prints GFLOPs, gigabytes of HBM traffic and milliseconds of standard attention and of its own
kernel. Here standard_attention with its backward pass, and flash_forward with flash_backward, run at the same
shape with 16-bit inputs, counts only.

What to look at: every launch asks for what its closed form says; the traffic of DRAM beside the paper's; and,
pass by pass, what the paper's pipelines move that these do not: a mask, dropout, and the loop order of the
first FlashAttention, which keeps K and V and takes Q, O and dQ again for each tile of keys. What it leaves
out: time, and how the paper counts FLOPs, which it does not say.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import kernels_sim
from dsl.host.device import Device
from gpusim.advice import differing
from gpusim.arch import get_arch
from gpusim.launch import Launch, counter
from gpusim.report_progress import progress_bar
from gpusim.table import Cell, Table, counted, paragraph, render
from kernels_sim.attention_facts import AT_DRAM, FLOPS
from kernels_sim.problem import Data
from kernels_sim.run import run_problem

N, D, HEADS, BATCH = 1024, 64, 16, 64
VECTOR, MATRIX, ROW = 2 * N * D, 2 * N * N, 4 * N
"""Bytes of one head: N x d of 16 bits (Q or O), N x N of 16 bits (S or P), N of 32 bits (L or D)."""
KEY_TILES = N // 256
"""Tiles of keys of the first FlashAttention: 256 keys at d = 64 on an A100 (csrc/flash_attn/fmha_api.cpp)."""
AGAIN = 2 * (KEY_TILES - 1)
"""How often it writes or reads a partial O or dQ, in 32 bits, between its tiles of keys."""
ASKED = ("global_load.bytes", "global_store.bytes", "global_red.bytes")
"""What a launch asks for at L1."""


@dataclass(frozen=True)
class Pass:
    """Hold one pass over memory: the launch here, what moves, and the bytes of one head here and in the
    paper's pipeline, where each array of a pass comes from DRAM or goes there once.
    """

    launch: str
    name: str
    moves: str
    here: int
    paper: int
    why: str = ""


STANDARD_PASSES = (
    Pass("scores", "scores", "Q, K in; S out", 2 * VECTOR + 2 * MATRIX, 2 * VECTOR + MATRIX,
         "here S has 32 bits"),
    Pass("", "mask", "S in and out", 0, 2 * MATRIX, "no mask here"),
    Pass("softmax", "softmax", "S in; P (and here L) out", 3 * MATRIX + ROW, 2 * MATRIX,
         "here S has 32 bits"),
    Pass("", "dropout", "P in and out, 1 byte a pair out", 0, 2 * MATRIX + MATRIX // 2, "no dropout here"),
    Pass("output", "output", "P, V in; O out", 2 * VECTOR + MATRIX, 2 * VECTOR + MATRIX),
    Pass("value_gradient", "dV", "P, dO in; dV out", 2 * VECTOR + MATRIX, 2 * VECTOR + MATRIX),
    Pass("weight_gradient", "dP", "dO, V in; dP out", 2 * VECTOR + 2 * MATRIX, 2 * VECTOR + MATRIX,
         "here dP has 32 bits"),
    Pass("", "dropout of dP", "dP in and out, 1 byte a pair in", 0, 2 * MATRIX + MATRIX // 2,
         "no dropout here"),
    Pass("score_gradient", "dS", "P, dP in; dS out", 4 * MATRIX, 3 * MATRIX, "here dP has 32 bits"),
    Pass("query_gradient", "dQ", "dS, K in; dQ out", 2 * VECTOR + MATRIX, 2 * VECTOR + MATRIX),
    Pass("key_gradient", "dK", "dS, Q in; dK out", 2 * VECTOR + MATRIX, 2 * VECTOR + MATRIX),
)
FLASH_PASSES = (
    Pass("flash_forward", "forward", "K, V in", 2 * VECTOR, 2 * VECTOR),
    Pass("flash_forward", "", "Q in", VECTOR, KEY_TILES * VECTOR, "for each tile of keys"),
    Pass("flash_forward", "", "O out", VECTOR, (1 + 2 * AGAIN) * VECTOR, "32 bits between tiles"),
    Pass("flash_forward", "", "L out", ROW, (1 + AGAIN) * ROW, "between tiles"),
    Pass("delta", "D", "O, dO in; D out", 2 * VECTOR + ROW, VECTOR + ROW, "there dO is at hand"),
    Pass("flash_backward", "backward", "K, V in; dK, dV out", 4 * VECTOR, 4 * VECTOR),
    Pass("flash_backward", "", "Q, dO in", 2 * VECTOR, 2 * KEY_TILES * VECTOR, "for each tile of keys"),
    Pass("flash_backward", "", "L, D in", 2 * ROW, 2 * KEY_TILES * ROW, "for each tile of keys"),
    Pass("delta", "", "dQ set to 0, 32 bits", 2 * VECTOR, 0, "for the atomic adds here"),
    Pass("flash_backward", "", "dQ in and out, 32 bits", 4 * VECTOR, (1 + 2 * AGAIN) * VECTOR,
         "between tiles, 16 bits at last"),
)


@dataclass(frozen=True)
class Pipeline:
    """Hold one column of the paper's table: what it prints, the kernels here, and the passes of both."""

    name: str
    gflops: str
    gigabytes: str
    milliseconds: str
    kernels: tuple[str, str]
    passes: tuple[Pass, ...]

    def bytes_once(self, launch: str) -> int:
        """Return the bytes of one head that a launch moves if each of its arrays comes and goes once."""
        return sum(step.here for step in self.passes if step.launch == launch)


PIPELINES = (
    Pipeline("Standard", "66.6", "40.3", "41.7", ("standard_attention", "standard_attention_backward"),
             STANDARD_PASSES),
    Pipeline("FlashAttention", "75.2", "4.4", "7.3", ("flash_forward", "flash_backward"), FLASH_PASSES),
)  # fmt: skip

NOTES = (
    "Counted: counts only, on a simulated A100 with cold caches before each launch. Q, K, V, P, O and their "
    "gradients have 16 bits, S, dP, L, D and the sum of dQ 32. Neither pipeline here has a mask or dropout.",
    "Level: the paper's HBM is DRAM. DRAM here is read + written back + still dirty at the end of a launch, "
    "modelled with public figures of the A100, not held against the card. Asked at L1 is exact.",
    "Pass by pass: each array of a pass comes from DRAM or goes there once. The paper names masking of S and "
    "dropout of P (section 2.2) but not the kernels of its baseline; assumed are PyTorch's on 16-bit "
    "matrices. Of the ways to mask, the one that fits: a mask added to S, whose gradient needs no pass. "
    "With masked_fill the backward pass reads and writes dS once more, "
    f"{2 * MATRIX * HEADS * BATCH / 1e9:.2f} GB.",
    "FlashAttention 1 walks tiles of 256 keys outside and all rows inside (algorithms 1 and 4; its first "
    "code for the tile, and for O and dQ in 32 bits between tiles). Mask and dropout move nothing there. "
    "Where L2 still holds what an earlier tile read or wrote, DRAM moves less than the sum, down to the "
    f"{12 * VECTOR * HEADS * BATCH / 1e9:.2f} GB of each array once: that the rest is negative was to be "
    "expected, its size is not explained.",
    "FLOPs here are all 32-bit ones executed. The paper does not say what it counts: the products alone take "
    f"12 and 14 N^2 d a head, {12 * N * N * D * HEADS * BATCH / 1e9:.1f} and "
    f"{14 * N * N * D * HEADS * BATCH / 1e9:.1f} GFLOP for all heads, so its 66.6 and 75.2 are not "
    "explained.",
)


def simulate(batch: int = BATCH) -> list[list[Launch]]:
    """Run both pipelines, counts only, for `batch` of the 64 sequences; return the launches of each."""
    return [[x for kernel in p.kernels for x in _run(kernel, batch)] for p in PIPELINES]


def _run(kernel: str, batch: int) -> list[Launch]:
    spec = kernels_sim.find(kernel)
    problem = spec.build(spec.options(N=N, d=D, heads=HEADS, batch=batch, dtype="float16"),
                         Data(virtual=True))  # fmt: skip
    with progress_bar(kernel) as progress:
        return run_problem(problem, Device(get_arch("a100")), counts_only=True, progress=progress)


def report(pipelines: list[list[Launch]], batch: int = BATCH) -> str:
    """Return what `simulate` gave for `batch` sequences as text: the paper's table, the launches, the passes
    and what is assumed.
    """
    heads = HEADS * batch
    lines = [
        "FlashAttention (Dao et al. 2022, arXiv 2205.14135), figure 2, left: attention of GPT-2 medium,",
        f"forward + backward, N = {N}, d = {D}, {HEADS} heads, batch {BATCH}, A100",
        "",
    ]
    if batch < BATCH:
        lines += [*paragraph(f"{counted(batch, 'sequence')} of {BATCH} ran ({heads} of {HEADS * BATCH:,} "
                             "heads); but for the table of launches, counts are scaled to all."), ""]
    lines += [*render(_paper_table(pipelines, BATCH / batch)), ""]
    lines += [*render(_launch_table(pipelines, heads)), ""]
    for pipeline, launches in zip(PIPELINES, pipelines, strict=True):
        lines += [*render(_pass_table(pipeline, _dram_bytes(launches) * BATCH / batch)), ""]
    lines += chain.from_iterable(paragraph(note, "- ") for note in NOTES)
    return "\n".join(lines) + "\n"


def _paper_table(pipelines: list[list[Launch]], scale: float) -> Table:
    """Return the paper's three rows beside the counts of all heads, and what was asked for at L1."""
    standard, flash = PIPELINES
    flops, dram, asked = (
        [scale * count(launches) / 1e9 for launches in pipelines] for count in (_flops, _dram_bytes, _asked)
    )
    headers = ("", "Unit", "Standard, Paper", "Here", "FlashAttention, Paper", "Here", "Source")
    return Table(headers, (
        ("FLOPs", "GFLOP", standard.gflops, flops[0], flash.gflops, flops[1], "exact"),
        ("DRAM read and written", "GB", standard.gigabytes, dram[0], flash.gigabytes, dram[1], "modelled"),
        ("Asked at L1", "GB", "", asked[0], "", asked[1], "exact"),
        ("Runtime", "ms", standard.milliseconds, None, flash.milliseconds, None, "needs time"),
    ), "llrrrrl")  # fmt: skip


def _launch_table(pipelines: list[list[Launch]], heads: int) -> Table:
    """Return a row for each launch that ran: bytes asked for and their closed form, and DRAM's bytes."""
    rows: list[tuple[Cell, ...]] = []
    for pipeline, launches in zip(PIPELINES, pipelines, strict=True):
        rows += [_launch_row(launch, heads * pipeline.bytes_once(launch.kernel)) for launch in launches]
    headers = ("Launch", "Asked At L1, B", "Closed Form", "Verdict", "DRAM, B (Modelled)", "Each Array Once")
    title = f"Launches of {counted(heads, 'head')}"
    return Table(headers, tuple(rows), "lrrlrr", title)


def _launch_row(launch: Launch, once: int) -> tuple[Cell, ...]:
    expected = sum(launch.closed_form.get(path, 0) for path in ASKED)
    verdict = "DIFFERENT" if differing(launch) else "equal"
    return launch.kernel, _asked([launch]), expected, verdict, _dram_bytes([launch]), once


def _pass_table(pipeline: Pipeline, dram_bytes: float) -> Table:
    """Return a row for each pass, GB of all heads here and in the paper's pipeline, and what is left over."""
    unit = HEADS * BATCH / 1e9
    here, paper = (unit * sum(getattr(p, way) for p in pipeline.passes) for way in ("here", "paper"))
    found = dram_bytes / 1e9
    rows = [(p.name, p.moves, *map(_gb, (unit * p.here, unit * p.paper, unit * (p.paper - p.here))), p.why)
            for p in pipeline.passes]  # fmt: skip
    rows += [
        ("sum", "", _gb(here), _gb(paper), _gb(paper - here), ""),
        ("found", "modelled here; printed there", _gb(found), pipeline.gigabytes, "", ""),
        ("rest", "found - sum", _gb(found - here), _gb(float(pipeline.gigabytes) - paper), "", "unexplained"),
    ]
    headers = ("Pass", "Moves", "Here", "Paper's Way", "More", "Because")
    title = f"{pipeline.name}: from here to the paper, GB of DRAM by formula"
    return Table(headers, tuple(rows), "llrrrl", title, ruled_rows=3)


def _gb(amount: float) -> str:
    """Return gigabytes to the megabyte, with no minus before a zero."""
    return f"{round(amount, 3) + 0.0:,.3f}"


def _asked(launches: list[Launch]) -> int:
    return _total(launches, dict.fromkeys(ASKED, 1))


def _dram_bytes(launches: list[Launch]) -> int:
    return _total(launches, dict.fromkeys(AT_DRAM, 1))


def _flops(launches: list[Launch]) -> int:
    return _total(launches, FLOPS)


def _total(launches: list[Launch], factors: dict[str, int]) -> int:
    """Return the sum of some counters of all launches, each times its factor."""
    return sum(times * counter(x.counters, path) for x in launches for path, times in factors.items())
