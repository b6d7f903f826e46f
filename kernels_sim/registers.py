"""Registers a thread takes in each shipped kernel, as recorded from ptxas.

What it models: launch__registers_per_thread of the kernels of this package, compiled by numba-cuda for
sm_90; all that were also profiled on an H200 are equal to what ncu shows. bench/record_registers.py prints
this table anew. What it leaves out: other compilers, versions and targets, option values that are not in
the table (of flash_row_dq d = 128, whose arrays that compiler leaves in local memory), the main launch of
flash_backward, and flash_forward, which has a table of its own: numba-cuda leaves their local arrays in local
memory for d above 16, this simulator keeps them in registers, and the 96 to 168 registers that an H200 showed
there (h200 fact 27) are those of another machine code.
"""

from __future__ import annotations

SOURCE = "ptxas 13.0.88 on numba-cuda 0.30.4 (NVVM 13.0.88), sm_90"
LEAST = 16
"""ncu shows 16 where ptxas says fewer; a warp is given 512 registers with 9 to 16 of them a thread."""

RECORDED: dict[tuple[str, str], int] = {
    ("vec_add", ""): 15,
    ("strided_copy", ""): 12,
    ("offset_copy", ""): 12,
    ("transpose", "naive"): 22,
    ("transpose", "tiled"): 28,
    ("transpose", "padded"): 26,
    ("matmul_tiled", ""): 32,
    ("softmax_rows", ""): 40,
    ("softmax_merge", ""): 27,
    ("softmax_merge", "d=0"): 30,
    ("histogram", "global"): 10,
    ("histogram", "shared"): 17,
    ("block_reduce", ""): 14,
    ("flash_backward", "delta d=16 causal=False deterministic=False"): 40,
    ("flash_backward", "delta d=16 causal=False deterministic=True"): 30,
    ("flash_backward", "reduce d=16 causal=False deterministic=True"): 43,
    ("flash_backward", "delta d=16 causal=True deterministic=False"): 40,
    ("flash_backward", "delta d=16 causal=True deterministic=True"): 30,
    ("flash_backward", "reduce d=16 causal=True deterministic=True"): 43,
    ("flash_backward", "delta d=48 causal=False deterministic=False"): 31,
    ("flash_backward", "delta d=48 causal=False deterministic=True"): 32,
    ("flash_backward", "reduce d=48 causal=False deterministic=True"): 44,
    ("flash_backward", "delta d=48 causal=True deterministic=False"): 31,
    ("flash_backward", "delta d=48 causal=True deterministic=True"): 32,
    ("flash_backward", "reduce d=48 causal=True deterministic=True"): 44,
    ("flash_backward", "delta d=64 causal=False deterministic=False"): 40,
    ("flash_backward", "delta d=64 causal=False deterministic=True"): 30,
    ("flash_backward", "reduce d=64 causal=False deterministic=True"): 43,
    ("flash_backward", "delta d=64 causal=True deterministic=False"): 40,
    ("flash_backward", "delta d=64 causal=True deterministic=True"): 30,
    ("flash_backward", "reduce d=64 causal=True deterministic=True"): 43,
    ("flash_backward", "delta d=80 causal=False deterministic=False"): 31,
    ("flash_backward", "delta d=80 causal=False deterministic=True"): 32,
    ("flash_backward", "reduce d=80 causal=False deterministic=True"): 44,
    ("flash_backward", "delta d=80 causal=True deterministic=False"): 31,
    ("flash_backward", "delta d=80 causal=True deterministic=True"): 32,
    ("flash_backward", "reduce d=80 causal=True deterministic=True"): 44,
    ("flash_backward", "delta d=128 causal=False deterministic=False"): 40,
    ("flash_backward", "delta d=128 causal=False deterministic=True"): 30,
    ("flash_backward", "reduce d=128 causal=False deterministic=True"): 43,
    ("flash_backward", "delta d=128 causal=True deterministic=False"): 40,
    ("flash_backward", "delta d=128 causal=True deterministic=True"): 30,
    ("flash_backward", "reduce d=128 causal=True deterministic=True"): 43,
    ("flash_row_delta", "d=16"): 32,
    ("flash_row_delta", "d=32"): 32,
    ("flash_row_delta", "d=48"): 32,
    ("flash_row_delta", "d=64"): 32,
    ("flash_row_delta", "d=80"): 32,
    ("flash_row_delta", "d=96"): 32,
    ("flash_row_delta", "d=128"): 32,
    ("flash_row_forward", "d=16 causal=False"): 64,
    ("flash_row_forward", "d=16 causal=True"): 72,
    ("flash_row_forward", "d=32 causal=False"): 120,
    ("flash_row_forward", "d=32 causal=True"): 124,
    ("flash_row_forward", "d=48 causal=False"): 154,
    ("flash_row_forward", "d=48 causal=True"): 158,
    ("flash_row_forward", "d=64 causal=False"): 184,
    ("flash_row_forward", "d=64 causal=True"): 184,
    ("flash_row_forward", "d=80 causal=False"): 230,
    ("flash_row_forward", "d=80 causal=True"): 232,
    ("flash_row_forward", "d=96 causal=False"): 244,
    ("flash_row_forward", "d=96 causal=True"): 244,
    ("flash_row_forward", "d=128 causal=False"): 255,  # stack frame 152 bytes, 460 spilled
    ("flash_row_forward", "d=128 causal=True"): 255,  # stack frame 152 bytes, 604 spilled
    ("flash_row_dq", "d=16 causal=False"): 96,
    ("flash_row_dq", "d=16 causal=True"): 96,
    ("flash_row_dq", "d=32 causal=False"): 166,
    ("flash_row_dq", "d=32 causal=True"): 167,
    ("flash_row_dq", "d=48 causal=False"): 255,
    ("flash_row_dq", "d=48 causal=True"): 255,
    ("flash_row_dq", "d=64 causal=False"): 255,  # stack frame 184 bytes, 360 spilled
    ("flash_row_dq", "d=64 causal=True"): 255,  # stack frame 176 bytes, 344 spilled
    ("flash_row_dq", "d=80 causal=False"): 255,  # stack frame 464 bytes, 920 spilled
    ("flash_row_dq", "d=80 causal=True"): 255,  # stack frame 456 bytes, 904 spilled
    ("flash_row_dq", "d=96 causal=False"): 255,  # stack frame 720 bytes, 1432 spilled
    ("flash_row_dq", "d=96 causal=True"): 255,  # stack frame 712 bytes, 1416 spilled
    ("flash_row_dv", "d=16 causal=False"): 70,
    ("flash_row_dv", "d=16 causal=True"): 70,
    ("flash_row_dv", "d=32 causal=False"): 126,
    ("flash_row_dv", "d=32 causal=True"): 127,
    ("flash_row_dv", "d=48 causal=False"): 95,
    ("flash_row_dv", "d=48 causal=True"): 95,
    ("flash_row_dv", "d=64 causal=False"): 127,
    ("flash_row_dv", "d=64 causal=True"): 124,
    ("flash_row_dv", "d=80 causal=False"): 126,
    ("flash_row_dv", "d=80 causal=True"): 126,
    ("flash_row_dv", "d=96 causal=False"): 165,
    ("flash_row_dv", "d=96 causal=True"): 164,
    ("flash_row_dv", "d=128 causal=False"): 168,
    ("flash_row_dv", "d=128 causal=True"): 253,
    ("flash_row_dk", "d=16 causal=False"): 96,
    ("flash_row_dk", "d=16 causal=True"): 127,
    ("flash_row_dk", "d=32 causal=False"): 96,
    ("flash_row_dk", "d=32 causal=True"): 94,
    ("flash_row_dk", "d=48 causal=False"): 122,
    ("flash_row_dk", "d=48 causal=True"): 126,
    ("flash_row_dk", "d=64 causal=False"): 127,
    ("flash_row_dk", "d=64 causal=True"): 128,
    ("flash_row_dk", "d=80 causal=False"): 165,
    ("flash_row_dk", "d=80 causal=True"): 163,
    ("flash_row_dk", "d=96 causal=False"): 165,
    ("flash_row_dk", "d=96 causal=True"): 168,
    ("flash_row_dk", "d=128 causal=False"): 253,
    ("flash_row_dk", "d=128 causal=True"): 251,
    ("standard_attention", "scores d=16 causal=False"): 32,
    ("standard_attention", "softmax d=16 causal=False"): 40,
    ("standard_attention", "output d=16 causal=False"): 60,
    ("standard_attention", "scores d=16 causal=True"): 35,
    ("standard_attention", "softmax d=16 causal=True"): 40,
    ("standard_attention", "output d=16 causal=True"): 68,
    ("standard_attention", "scores d=48 causal=False"): 64,
    ("standard_attention", "softmax d=48 causal=False"): 40,
    ("standard_attention", "output d=48 causal=False"): 60,
    ("standard_attention", "scores d=48 causal=True"): 64,
    ("standard_attention", "softmax d=48 causal=True"): 40,
    ("standard_attention", "output d=48 causal=True"): 68,
    ("standard_attention", "scores d=64 causal=False"): 64,
    ("standard_attention", "softmax d=64 causal=False"): 40,
    ("standard_attention", "output d=64 causal=False"): 60,
    ("standard_attention", "scores d=64 causal=True"): 64,
    ("standard_attention", "softmax d=64 causal=True"): 40,
    ("standard_attention", "output d=64 causal=True"): 68,
    ("standard_attention", "scores d=80 causal=False"): 64,
    ("standard_attention", "softmax d=80 causal=False"): 40,
    ("standard_attention", "output d=80 causal=False"): 60,
    ("standard_attention", "scores d=80 causal=True"): 64,
    ("standard_attention", "softmax d=80 causal=True"): 40,
    ("standard_attention", "output d=80 causal=True"): 68,
    ("standard_attention", "scores d=128 causal=False"): 64,
    ("standard_attention", "softmax d=128 causal=False"): 40,
    ("standard_attention", "output d=128 causal=False"): 60,
    ("standard_attention", "scores d=128 causal=True"): 64,
    ("standard_attention", "softmax d=128 causal=True"): 40,
    ("standard_attention", "output d=128 causal=True"): 68,
}
"""(kernel, variant) -> registers as ptxas prints them; the variant names the options that change the code."""


def recorded(kernel: str, variant: str = "") -> tuple[int | None, str]:
    """Return the registers of a kernel and where they come from, or (None, "") if they were not recorded."""
    registers = RECORDED.get((kernel, variant))
    return (None, "") if registers is None else (max(LEAST, registers), SOURCE)
