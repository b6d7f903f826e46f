"""Random kernels as source text: what the engine, the interpreter and the front end are compared on.

Each kernel takes (a float32[n], x int32[n], out float32[m], outi int32[m], n) and uses what a seed picks:
nested branches on uniform, affine and loaded values, loops with equal and unequal trip counts, break,
continue and early return, shared memory with barriers, warp operations, private arrays with known and
computed indices, atomics, and integer division. Every index is in bounds by construction.
"""

from __future__ import annotations

import random

HEAD = """
import math
import numpy as np
from dsl import cuda
float32, int32, int64 = np.float32, np.int32, np.int64
int8, uint8, int16, uint32 = np.int8, np.uint8, np.int16, np.uint32

@cuda.jit
def kernel(a, x, out, outi, n):
    s = cuda.shared.array({shared}, float32)
    c = cuda.shared.array({shared}, int32)
    p = cuda.local.array(8, float32)
    q = cuda.local.array(6, int64)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    t = tx + ty * cuda.blockDim.x
    b = cuda.blockIdx.x
    i = b * (cuda.blockDim.x * cuda.blockDim.y) + t
    m = out.shape[0]
    s[t] = float32(t)
    c[t] = t
    for z in range(8):
        p[z] = float32(z)
    for z in range(6):
        q[z] = z + tx
    f0 = float32(0.5)
    f1 = float32(i)
    f2 = float32(-1.25)
    v0 = 3
    v1 = i
    v2 = tx - 7
    cuda.syncthreads()
"""
TAIL = """
    if i < m:
        out[i] = f0 + f1 * f2
        outi[i] = v0 + v1 * 3 + v2
"""


class Writer:
    """Write one kernel's source from a seed."""

    def __init__(self, seed: int, threads: int) -> None:
        self.r, self.threads = random.Random(seed), threads
        self.lines: list[str] = []
        self.loops = 0

    def line(self, depth: int, text: str) -> None:
        """Append one line at a depth of indentation."""
        self.lines.append("    " * depth + text)

    def integer(self, deep: int = 0) -> str:
        """Return an integer expression."""
        number, shared = self.r.randint(-9, 40), f"c[{self.index()}]"
        simple = ["v0", "v1", "v2", "i", "t", "tx", "ty", "b", "n", str(number), "q[2]", "x[i % n]", shared]
        if deep > 2 or self.r.random() < 0.4:
            return self.r.choice(simple)
        a, b = self.integer(deep + 1), self.integer(deep + 1)
        k = self.r.choice([2, 3, 4, 5, 7, 8, 16, 32])
        return self.r.choice([
            f"({a} + {b})", f"({a} - {b})", f"({a} * {self.r.randint(-3, 5)})", f"({a} // {k})",
            f"({a} % {k})", f"min({a}, {b})", f"max({a}, {b})", f"abs({a})", f"({a} & {k - 1})",
            f"(({a} % 64) >> 2)", f"(({a} % 64) << 1)", f"({a} // ({b} % 5 + 1))",
            f"({a} if {self.condition(deep + 1)} else {b})", f"({a} ^ {b})",
            f"int64(int8({a}))", f"int64(uint8({a}))", f"int64(int16({a} * 37))", f"int64(int32({a}))",
            f"int64(uint32({a}) // uint32(3))",
        ])  # fmt: skip

    def index(self) -> str:
        """Return an index into shared memory that is in bounds."""
        wrapped = f"({self.r.choice(['i', 'v1', 'v2', 'v0'])} % {self.threads})"
        return self.r.choice(["t", f"({self.threads} - 1 - t)", "tx", wrapped, "0", "(t // 4)"])

    def real(self, deep: int = 0) -> str:
        """Return a float expression."""
        number, private = f"float32({self.r.randint(-20, 20) / 4})", f"p[{self.r.randint(0, 7)}]"
        simple = ["f0", "f1", "f2", number, private, "a[i % n]", f"s[{self.index()}]"]
        if deep > 2 or self.r.random() < 0.4:
            return self.r.choice(simple)
        a, b = self.real(deep + 1), self.real(deep + 1)
        return self.r.choice([
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} * {b} + {self.real(deep + 1)})",
            f"max({a}, {b})", f"min({a}, {b})", f"abs({a})", f"math.exp(min({a}, float32(3)))",
            f"math.sqrt(abs({a}))", f"({a} / (abs({b}) + float32(1)))", f"float32({self.integer(2)})",
            f"({a} if {self.condition(deep + 1)} else {b})", f"math.log(abs({a}) + float32(1))",
            f"p[{self.integer(2)} % 8]",
        ])  # fmt: skip

    def condition(self, deep: int = 0) -> str:
        """Return a condition."""
        op = self.r.choice(["<", "<=", ">", ">=", "==", "!="])
        operand = self.integer if self.r.random() < 0.7 else self.real
        simple = f"{operand(3)} {op} {operand(3)}"
        if deep > 1 or self.r.random() < 0.7:
            return f"({simple})"
        return f"({simple} {self.r.choice(['and', 'or'])} {self.condition(deep + 1)})"

    def statement(self, depth: int, deep: int, in_loop: bool) -> None:
        """Write one statement: `depth` is its indentation, `deep` how many blocks it is inside."""
        kinds = ["f", "f", "v", "v", "if", "p", "q", "store", "warp"]
        if deep < 3:
            kinds += ["if", "for", "while"]
        if in_loop:
            kinds += ["break", "continue"]
        kind = self.r.choice(kinds)
        getattr(self, f"do_{kind}")(depth, deep, in_loop)

    def body(self, depth: int, deep: int, in_loop: bool) -> None:
        """Write one to three statements."""
        for _ in range(self.r.randint(1, 3)):
            self.statement(depth, deep, in_loop)

    def do_f(self, depth: int, deep: int, in_loop: bool) -> None:
        """Assign a float."""
        self.line(depth, f"f{self.r.randint(0, 2)} {self.r.choice(['=', '+=', '='])} {self.real()}")

    def do_v(self, depth: int, deep: int, in_loop: bool) -> None:
        """Assign an integer."""
        self.line(depth, f"v{self.r.randint(0, 2)} = ({self.integer()}) % 1000 - 300")

    def do_p(self, depth: int, deep: int, in_loop: bool) -> None:
        """Assign an element of the private float array."""
        index = str(self.r.randint(0, 7)) if self.r.random() < 0.7 else f"{self.integer(2)} % 8"
        self.line(depth, f"p[{index}] = {self.real()}")

    def do_q(self, depth: int, deep: int, in_loop: bool) -> None:
        """Assign an element of the private integer array."""
        self.line(depth, f"q[{self.r.randint(0, 5)}] = ({self.integer()}) % 500")

    def do_store(self, depth: int, deep: int, in_loop: bool) -> None:
        """Write to global or shared memory, or do an atomic."""
        self.line(depth, self.r.choice([
            f"outi[({self.integer(2)}) % m] = {self.integer(2)} % 100", f"out[i % m] = {self.real(2)}",
            f"cuda.atomic.add(outi, ({self.integer(2)}) % m, {self.r.randint(1, 5)})",
            f"cuda.atomic.max(outi, t % m, {self.integer(2)} % 50)",
            f"v1 = cuda.atomic.add(outi, ({self.integer(2)}) % m, 1) % 100",
            f"c[t] = {self.integer(1)} % 77", f"s[t] = {self.real(1)}",
            f"cuda.atomic.add(c, {self.index()}, 2)",
            f"cuda.atomic.xor(outi, ({self.integer(2)}) % m, t)",
            f"v2 = cuda.atomic.exch(outi, ({self.integer(2)}) % m, t) % 50",
            f"v1 = cuda.atomic.cas(outi, ({self.integer(2)}) % m, 0, t + 1) % 60",
            f"cuda.atomic.min(c, {self.index()}, t)",
            f"cuda.atomic.max(s, {self.index()}, {self.real(2)})",
        ]))  # fmt: skip

    def do_warp(self, depth: int, deep: int, in_loop: bool) -> None:
        """Write an exchange among the lanes that are here, whichever they are."""
        here, name = "cuda.activemask()", f"v{self.r.randint(0, 2)}"
        self.line(depth, self.r.choice([
            f"{name} = int64(cuda.popc(cuda.ballot_sync({here}, {self.condition(1)})))",
            f"{name} = cuda.shfl_sync({here}, {self.integer(2)}, cuda.ffs({here}) - 1) % 900",
            f"f{self.r.randint(0, 2)} = cuda.shfl_xor_sync({here}, {self.real(2)}, 0)",
            f"{name} = int64(cuda.popc(cuda.match_any_sync({here}, {self.integer(2)} % 3)))",
            f"{name} = 1 if cuda.any_sync({here}, {self.condition(1)}) else 2",
            f"{name} = 3 if cuda.eq_sync({here}, {self.condition(1)}) else 4",
            f"{name} = int64(cuda.clz({here}) + cuda.popc(cuda.lanemask_lt()))",
        ]))  # fmt: skip

    def do_if(self, depth: int, deep: int, in_loop: bool) -> None:
        """Write an if, perhaps with an else."""
        self.line(depth, f"if {self.condition()}:")
        self.body(depth + 1, deep + 1, in_loop)
        if self.r.random() < 0.5:
            self.line(depth, "else:")
            self.body(depth + 1, deep + 1, in_loop)

    def do_for(self, depth: int, deep: int, in_loop: bool) -> None:
        """Write a for loop over a range."""
        self.loops += 1
        stop = self.r.choice([str(self.r.randint(0, 6)), f"({self.integer(2)}) % 6", "(t % 5)", "8"])
        start = self.r.choice(["", "", "1, ", "t % 3, "])
        step = f", {self.r.randint(1, 3)}" if start else ""
        self.line(depth, f"for k{self.loops} in range({start}{stop}{step}):")
        if self.r.random() < 0.6:
            self.line(depth + 1, f"p[k{self.loops} % 8] += {self.real(2)}")
        self.body(depth + 1, deep + 1, True)

    def do_while(self, depth: int, deep: int, in_loop: bool) -> None:
        """Write a while loop that counts up."""
        self.loops += 1
        name = f"w{self.loops}"
        self.line(depth, f"{name} = 0")
        self.line(depth, f"while {name} < {self.r.choice(['4', '(t % 4)', f'({self.integer(2)}) % 5'])}:")
        self.line(depth + 1, f"{name} += 1")
        self.body(depth + 1, deep + 1, True)

    def do_break(self, depth: int, deep: int, in_loop: bool) -> None:
        """Leave the loop under a condition."""
        self.line(depth, f"if {self.condition()}:")
        self.line(depth + 1, "break")

    def do_continue(self, depth: int, deep: int, in_loop: bool) -> None:
        """Go on with the next iteration under a condition."""
        self.line(depth, f"if {self.condition()}:")
        self.line(depth + 1, "continue")

    def top(self) -> None:
        """Write one statement of the top level, where barriers and uniform loops around them may stand."""
        pick = self.r.random()
        if pick < 0.2:
            self.line(1, "cuda.syncthreads()")
        elif pick < 0.25:
            gather = self.r.choice(["count", "and", "or"])
            self.line(1, f"v0 = int64(cuda.syncthreads_{gather}({self.condition(1)}))")
        elif pick < 0.3 and self.threads % 32 == 0:
            move = self.r.choice(["shfl_up_sync", "shfl_down_sync", "shfl_xor_sync"])
            self.line(1, f"f1 = cuda.{move}(0xffffffff, {self.real(2)}, "
                         f"{self.r.choice(['1', '5', '16', 't % 4'])})")
        elif pick < 0.4:
            self.loops += 1
            self.line(1, f"for k{self.loops} in range({self.r.choice(['3', 'b + 1', 'n % 4'])}):")
            self.body(2, 2, False)
            self.line(2, "cuda.syncthreads()")
            self.body(2, 2, False)
            self.line(2, f"s[t] = {self.real(2)}")
            self.line(2, "cuda.syncthreads()")
        else:
            self.statement(1, 0, False)


def source(seed: int, threads: int) -> str:
    """Return the source of the kernel that belongs to a seed, for blocks of `threads` threads."""
    w = Writer(seed, threads)
    for _ in range(w.r.randint(3, 8)):
        w.top()
    if w.r.random() < 0.3:
        w.line(1, f"if {w.condition()}:")
        w.line(2, "return")
        w.body(1, 1, False)
    return HEAD.format(shared=threads) + "\n".join(w.lines) + "\n" + TAIL
