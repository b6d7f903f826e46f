"""Print the registers that ptxas gives each shipped kernel; no GPU is needed.

    python -m venv recording
    recording/bin/pip install -e '.[numba]'
    recording/bin/python bench/record_registers.py                    all of CASES
    recording/bin/python bench/record_registers.py softmax_rows       one kernel
    recording/bin/python bench/record_registers.py flash_forward d=48 Br=32 Bc=32

The output is the table of kernels_sim/registers.py. The kernels are the same sources, through numba-cuda and
ptxas (kernels_real/ptxas.py). A stack frame is noted beside them: bytes of a thread's local arrays that the
compiler left in local memory. What it leaves out: other targets, and what an assembler of another version
would say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpusim.errors import LaunchRefused  # noqa: E402
from kernels_real import ptxas  # noqa: E402
from kernels_sim import find  # noqa: E402
from kernels_sim.problem import Data  # noqa: E402

HEAD_DIMENSIONS = (16, 48, 64, 80, 128)
ROW_DIMENSIONS = (16, 32, 48, 64, 80, 96, 128)
TILES = ((64, 64), (32, 32), (64, 32), (128, 64))
"""(Br, Bc) of flash_forward that are recorded."""
CASES: dict[str, list[dict[str, Any]]] = {
    "vec_add": [{}],
    "strided_copy": [{}],
    "offset_copy": [{}],
    "transpose": [{"variant": v} for v in ("naive", "tiled", "padded")],
    "matmul_tiled": [{}],
    "softmax_rows": [{}],
    "softmax_merge": [{}, {"d": 0}],
    "qk_norm_rope": [
        {"d": d, **how}
        for d in (64, 128)
        for how in ({"paired": False}, {"paired": True}, {"rotary_dim": d // 2, "key_offset": True})
    ],
    "histogram": [{"variant": v} for v in ("global", "shared")],
    "block_reduce": [{}],
    "flash_forward": [
        {"d": d, "Br": Br, "Bc": Bc, "causal": causal}
        for d in HEAD_DIMENSIONS
        for Br, Bc in TILES
        for causal in (False, True)
    ],
    "flash_backward": [
        {"d": d, "causal": causal, "deterministic": fixed}
        for d in HEAD_DIMENSIONS
        for causal in (False, True)
        for fixed in (False, True)
    ],
    "flash_row_delta": [{"d": d} for d in ROW_DIMENSIONS],
    **{
        f"flash_row_{part}": [{"d": d, "causal": c} for d in ROW_DIMENSIONS for c in (False, True)]
        for part in ("forward", "dq", "dv", "dk")
    },
    "standard_attention": [{"d": d, "causal": c} for d in HEAD_DIMENSIONS for c in (False, True)],
    "standard_attention_backward": [{"d": d, "causal": c} for d in HEAD_DIMENSIONS for c in (False, True)],
}


def from_text(settings: list[str]) -> dict[str, Any]:
    """Turn name=value words into options: whole numbers and booleans, else text."""
    known = {"True": True, "False": False}
    pairs = (word.split("=", 1) for word in settings)
    return {name: int(text) if text.lstrip("-").isdigit() else known.get(text, text) for name, text in pairs}


def variant_name(case: dict[str, Any], step: Any, alone: bool) -> str:
    """Name a launch in the table: its function where a problem has several, then the options."""
    words = [] if alone else [step.kernel.py_func.__name__]
    return " ".join(words + [str(v) if name == "variant" else f"{name}={v}" for name, v in case.items()])


def record(name: str, cases: list[dict[str, Any]]) -> Iterator[str]:
    """Yield one line of the table for each launch of each case of a kernel."""
    spec = find(name)
    for case in cases:
        problem = spec.build(spec.options(**case), Data(virtual=True))
        for step in problem.steps:
            taken = ptxas.resources(step.kernel, step.args)
            variant = variant_name(case, step, len(problem.steps) == 1)
            frame, spilled = taken.stack_bytes, taken.spill_bytes
            note = f"  # stack frame {frame} bytes, {spilled} spilled" if frame or spilled else ""
            yield f'    ("{name}", "{variant}"): {taken.registers},{note}'


def main(arguments: list[str]) -> None:
    """Print SOURCE and the lines of RECORDED."""
    chosen = CASES if not arguments else {arguments[0]: CASES.get(arguments[0], [{}])}
    if arguments[1:]:
        chosen = {arguments[0]: [from_text(arguments[1:])]}
    try:
        ptxas.find_ptxas()
        print(f'SOURCE = "{ptxas.source("sm_90")}"')
        for name, cases in chosen.items():
            for line in record(name, cases):
                print(line, flush=True)
    except LaunchRefused as refused:
        raise SystemExit(f"record_registers: {refused}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
