"""Random programs: the compiled code and the Python source agree in every variable and array element."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest

from tests.dsl.frontend_support import agree

HEADER = """from dsl import cuda

def f(p, q):
    if p > q:
        return p - q
    p += 1
    if p < 0:
        p, q = q, p
        return q % 13
    for k in range(3):
        if q > k * 5:
            p += k
        else:
            return p * 2
    return p

def kernel(out, start, n):
    x = cuda.local.array(8, int)
    for z in range(8):
        x[z] = start[z]
    t = cuda.threadIdx.x
    a, b, c, d, i, j = n, t, 3, 4, 0, 1
"""
FOOTER = """
    out[t, 0], out[t, 1], out[t, 2], out[t, 3], out[t, 4], out[t, 5] = a, b, c, d, i, j
    for z in range(8):
        out[t, 6 + z] = x[z]
"""


class Program:
    """Write a random kernel: integers kept small by % so that 64 bits hold them, loops bounded."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.whiles = 0

    def number(self, depth: int = 0) -> str:
        """Return a random integer expression."""

        def x() -> str:
            return self.number(depth + 1)

        if depth > 3:
            return self.r.choice(["a", "b", "c", "d", "t", str(self.r.randint(-4, 5))])
        form = self.r.choice(
            [
                "leaf",
                "leaf",
                "({} + {})",
                "({} - {})",
                "({} * {})",
                "({} & {})",
                "({} // 3)",
                "({} % -5)",
                "max({}, {})",
                "abs({})",
                "f({}, {})",
                "x[{} % 8]",
                "int(?)",
                "({} if ? else {})",
            ]
        )
        if form == "leaf":
            return self.number(4)
        form = form.replace("?", self.condition(depth + 1))
        return form.format(*(x() for _ in range(form.count("{}"))))

    def condition(self, depth: int = 0) -> str:
        """Return a random condition."""
        forms = ["{} < {}", "{} == {}", "{} >= {}", "{} < {} <= {}"]
        if depth < 4:
            forms += ["(? and ?)", "(? or ?)", "(not ?)"]
        form = self.r.choice(forms)
        if "?" in form:
            first, _, rest = form.partition("?")
            parts = [first, self.condition(depth + 1), *rest.partition("?")]
            return "".join(self.condition(depth + 1) if p == "?" else p for p in parts)
        return form.format(*(self.number(depth + 1) for _ in range(form.count("{}"))))

    def loop(self) -> list[str]:
        """Return the first lines of a loop."""
        x = self.number(2)
        if self.r.random() < 0.4:
            self.whiles += 1
            w = f"w{self.whiles}"
            return [f"{w} = 0", f"while {w} < 4 and {self.condition(2)}:", f"    {w} += 1"]
        steps = [
            f"range({x} % 5)",
            f"range({x} % 9, 0, -2)",
            f"range(0, {x} % 9, 1 + b % 3)",
            f"range(5, {x} % 4, -1 - b % 2)",
            "(1, t, b)",
        ]
        return [f"for {self.r.choice('ija')} in {self.r.choice(steps)}:"]

    def block(self, depth: int = 1, in_loop: bool = False) -> list[str]:
        """Return the lines of a random block."""
        pad, lines = "    " * depth, []
        for _ in range(self.r.randint(1, 4)):
            v, w, x = self.r.choice("abcd"), self.r.choice("abcd"), self.number()
            kinds = [
                f"{v} = {x} % 1000",
                f"{v} -= {x} % 100",
                f"{v}, {w} = {w}, {x} % 99",
                f"x[{v} % 8] = {x} % 100",
                f"x[{v} % 8] += {x} % 100",
            ]
            kinds += ["if", "if", "loop", "jump"] if depth < 4 else []
            kind = self.r.choice(kinds)
            if kind == "if":
                lines += [f"{pad}if {self.condition()}:", *self.block(depth + 1, in_loop)]
                lines += [f"{pad}else:", *self.block(depth + 1, in_loop)] if self.r.random() < 0.5 else []
            elif kind == "loop":
                lines += (
                    [pad + s for s in self.loop()] + self.block(depth + 1, True) + [f"{pad}    c = c + i"]
                )
            elif kind == "jump":
                jump = self.r.choice(["break", "continue"] if in_loop else ["pass", "return"])
                lines += [f"{pad}if {self.condition()}:", f"{pad}    {jump}"]
            else:
                lines.append(pad + kind)
        return lines


@pytest.mark.parametrize("seed", range(20))
def test_a_random_program_gives_what_python_gives(seed: int, tmp_path: Path) -> None:
    path = tmp_path / f"program_{seed}.py"
    path.write_text(HEADER + "\n".join(Program(seed).block()) + FOOTER)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    start = np.random.default_rng(seed).integers(-9, 9, 8)
    agree(module.kernel, 1, 8, np.full((8, 14), -777, np.int64), start, 5)
