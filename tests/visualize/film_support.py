"""Films of shipped kernels, as the command makes them."""

from __future__ import annotations

from functools import cache
from typing import Any

import cli
from gpusim.arch import get_arch
from visualize.byte_log import MAX_STEPS, ByteLog
from visualize.film import Film, films
from visualize.run import Run

SETTINGS = {"seed": 0, "atomic_order": None, "regs": None, "counts_only": True, "engine": "compiled",
            "max_steps": None, "strict_index": False}  # fmt: skip
FLASH = ("flash_forward", (("N", 128), ("Br", 32), ("Bc", 32), ("d", 32)))
STANDARD = ("standard_attention", (("N", 64), ("d", 32)))


@cache
def watched(kernel: str, options: tuple[tuple[str, Any], ...], l2: str = "cold",
            most: int = MAX_STEPS) -> tuple[Run, ByteLog, list[dict[str, str]]]:  # fmt: skip
    """Return a kernel's run, what was seen of it, and the names of its arrays."""
    log = ByteLog(get_arch("h200").sm_count, most)
    problem, launches = cli.simulated_problem(kernel, "h200", l2, SETTINGS | dict(options), log)
    return Run(kernel, tuple(launches)), log, cli.by_parameter(problem)


def film(kernel: str, options: tuple[tuple[str, Any], ...], frames: int = 20, l2: str = "cold") -> Film:
    """Return the film of one kernel."""
    return films([watched(kernel, options, l2)], frames)[0]


def level(shown: Film, key: str) -> Any:
    """Return the level of a key."""
    return next(lv for lv in shown.levels if lv.key == key)
