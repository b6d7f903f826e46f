"""A hypothesis strategy for kernels: a grammar of statements and typed expressions, printed as Python source.

What the kernels hold: nested divergence, `for` over ranges, tuples and arrays, `while`, `break`, `continue`,
`return`, barriers and loops around them, global, shared and local loads and stores with positive and negative
indices, atomics with and without their old value, warp operations, device functions, and arithmetic of each
width.

Every launch has one answer, whatever the order of threads between two barriers:
- a thread writes only its own row of the outputs and its own private arrays;
- shared arrays are written in own cells in one segment and read in any cell in the next, a barrier between;
- atomics on shared cells commute: one operation an array, of integers, or of floats whose sums are exact;
- an old value is used only of own cells, or where each thread comes once a segment, as its first statement;
- exchanges among lanes name all lanes where none has branched off, else those of activemask.

Kernels that are `raced` (the engine and the interpreter have one order of warps and lanes, the source has
another) may besides use old values and write shared cells anywhere, and contract inexact products.

Every float product that a sum may take is exact (two factors of 6 bits), so that contraction into one fused
multiply-add changes no bit, and the source, which rounds after each operation, has the same answer. exp and
log of float32, which the source takes from the C library, are rounded far coarser than their last bits. NaN
never gets to where its sign or payload shows. Every variable keeps one type, every index is in bounds, and
every loop ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

HEAD = '''
import math
import ml_dtypes
import numpy as np
from dsl import cuda
float16, bfloat16, e4m3 = np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
bool_, int8, uint8, int16, uint16 = np.bool_, np.int8, np.uint8, np.int16, np.uint16
int32, uint32, int64, uint64, float32, float64 = (
    np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64)


@cuda.jit(device=True)
def small(x):
    return float32(int64(x * float32(4)) % 64 - 32) / float32(4)


@cuda.jit(device=True)
def whole(u, v, g):
{whole}
    return int64(u)


@cuda.jit(device=True)
def pair(u, v, g):
{pair}
    return v, g


@cuda.jit
def kernel(a, x, outf, outi, outd, gi, gl, gf, gu, ticks, n):
    s = cuda.shared.array({threads}, float32)
    c = cuda.shared.array({threads}, int32)
    h = cuda.shared.array(8, int32)
    p = cuda.local.array(4, float32)
    q = cuda.local.array(3, int64)
    tx = cuda.threadIdx.x
    t = tx + cuda.threadIdx.y * cuda.blockDim.x
    b = cuda.blockIdx.x
    i = b * {threads} + t
    s[t] = float32(t)
    c[t] = t
    if t < 8:
        h[t] = 0
    for z in range(4):
        p[z] = float32(z - tx)
    i0, i1, j0 = int64(t), int64(3), int32(n)
    f0, f1, d0, b0 = float32(0.5), float32(i), 1.5 - t, t > 3
    cuda.syncthreads()
'''
TAIL = """
    outi[i, 0] ^= i0 + 3 * i1 + j0 + b0
    outf[i, 0], outf[i, 1] = f0, f1
    outd[i, 0], outd[i, 1] = d0, p[0] + float64(q[1])
"""
BLOCKS = ((32, 1), (34, 1), (12, 1), (17, 2), (32, 2))
COMMUTING = ("add", "max", "xor", "sub", "min", "and_", "or_")
Tree = list[Any]
"""Lines of source; a list among them is the indented block that belongs to the line before."""


@dataclass(frozen=True)
class Scope:
    """Say what may stand at a place.

    raced: the order of threads may show. own: shared arrays are written in this segment, and only own cells
    are touched. together: no lane has branched off here. returns: the statement that leaves the function, ""
    where none does before its end. device: inside a device function, which sees its own names alone. loops:
    variables of the loops around. breaks: inside a loop that may be left.
    """

    threads: int = 32
    raced: bool = False
    own: bool = True
    together: bool = True
    returns: str = ""
    device: bool = False
    depth: int = 0
    loops: tuple[str, ...] = ()
    breaks: bool = False
    operations: tuple[str, ...] = ("add", "add", "add", "max")
    """The atomic of h, gi, gl and gf."""

    def deeper(self, **changes: Any) -> Scope:
        """Return the scope of a block inside."""
        return replace(self, depth=self.depth + 1, together=False, **changes)


# ---------------------------------------------------------------------------------------- expressions

NUMBERS = (
    "0", "1", "2", "-1", "3", "7", "31", "-5", "1000", "int64(2147483647)", "int64(-4294967297)",
)  # fmt: skip
"""As literals the last two would have products that Python works out, and that fit no 64 bits."""
INTEGERS = (
    "({I} + {I})", "({I} - {I})", "({I} * {I})", "({I} // {I})", "({I} % {I})", "({I} & {I})", "({I} | {I})",
    "({I} ^ {I})", "(-{I})", "(~{I})", "({I} << ({I} % 9))", "({I} >> ({I} % 9))", "min({I}, {I})",
    "max({I}, {I}, {I})", "abs({I})", "({I} if {B} else {I})", "({I} ** 2)", "({I} + {B})", "int64({B})",
    "int64({F})", "int64(int32({D}))", "int64(uint8({F}))", "round({F})", "int64(math.floor({D}))",
    "int64(float16({F}))", "int64(bfloat16({D}))",
    "int64(uint8({I}))", "int64(int8({I}))", "int64(int16({I}) * uint16({I}))", "int32({I})",
    "int64(uint32({I}) // uint32(7))", "int64(uint32({I}) * uint32({I}))", "int64(uint64({I}) >> uint64(3))",
    "int64(uint32({I}) - uint32({I}))", "int64(-uint8({I}))", "cuda.popc({I})", "int64(cuda.clz(int32({I})))",
    "int64(cuda.ffs({I}))", "int64(cuda.brev(uint32({I})))", "cuda.selp({B}, int64({I}), int64({I}))",
)  # fmt: skip
FLOATS = (
    "({F} + {F})", "({F} - {F})", "(small({F}) * small({F}) + {F})", "({F} - small({F}) * small({F}))",
    "max({F} * {F}, {F})", "({F} / {F})", "(-{F})", "abs({F})", "min({F}, {F})", "({F} if {B} else {F})",
    "float32({I})", "float32({D})", "({F} % {F})", "({F} // {F})", "math.sqrt(abs({F}))",
    "float32(round(math.exp(min({F}, float32(3))) * float32(8)))", "math.sin(small({F}))",
    "cuda.fma({F}, {F}, {F})", "(small({F}) ** 2)", "float32(round(math.log(abs({F})) * float32(8)))",
    "math.fabs({F})", "math.tanh({F})", "float32(uint8({I}))", "cuda.selp({B}, {F}, {F})",
    "math.copysign({F}, float32({I}))", "math.fmod({F}, {F})", "({F} + uint8({I}))", "math.trunc({F})",
    "float32(float16({F}))", "float32(float16({F}) + float16({F}))", "float32(float16({F}) * float16({F}))",
    "float32(float16({F}) / float16({F}))", "float32(-abs(bfloat16({F})))",
    "float32(min(bfloat16({F}), bfloat16({F})))", "float32(bfloat16({I}) - bfloat16({F}))",
    "float32(math.sqrt(float16({F})))",
    "float32(cuda.bf16.hfma(bfloat16({F}), bfloat16({F}), bfloat16({F})))", "float32(e4m3({F}))",
    "float32(cuda.fp16.hfma(float16({F}), float16({I}), float16({F})))", "float32(cuda.fp8.fp8_e5m2({F}))",
)  # fmt: skip
DOUBLES = (
    "({D} + {D})", "({D} - {F})", "({I} / {I})", "float64({F})", "({F} + {I})", "max({D}, {F})", "abs({D})",
    "float64({I})", "({D} / {D})", "(small({F}) * 0.25 + {D})", "({D} if {B} else {D})",
    "min({D} * {D}, {D})",
    "math.sqrt(abs({D}))", "math.exp({D})", "({D} // {D})", "({D} % {D})", "cuda.fma({D}, {D}, {D})",
    "float64(bfloat16({D}))", "float64(float16({D}) / float16({I}))", "(float16({F}) + {I})",
    "math.cos(small({F}) + 0.5)", "({D} * 2.0 > {D}) * 1.5", "math.atan2({D}, {D})",
)  # fmt: skip
BOOLEANS = (
    "({I} < {I})", "({I} == {I})", "({I} % 2 == 0)", "({F} > {F})", "({I} <= {I} < {I})", "(not {B})",
    "({B} and {B})", "({B} or {B})", "({D} != {F})", "({B} == {B})", "({B} ^ {B})", "({B} & {B})",
    "(float16({F}) < float16({I}))", "(bfloat16({F}) == bfloat16({D}))",
    "bool({I})", "({I} >= {F})", "math.isnan({F})", "({B} if {B} else {B})",
)  # fmt: skip
RACED = {
    "F": ("({F} * {F} + {F})", "({F} - {F} * {F})", "math.exp({F})", "math.log({F})"),
    "D": ("({D} * {D} + {D})",),
}
"""Expressions whose last bits differ from those of the source."""
INNER = {"I": INTEGERS, "F": FLOATS, "D": DOUBLES, "B": BOOLEANS}
LEAVES = {
    "I": ("t", "i0", "i1", "i", "tx", "n", "j0", "b", *NUMBERS, "x[{I} % 5]", "x[{I} % 5 - 5]", "q[{I} % 3]",
          "q[1]", "outi[i, {I} % 3]", "len(x)", "cuda.blockDim.x", "cuda.laneid"),
    "F": ("f0", "f1", "float32(0.25)", "float32(-3)", "a[{I} % 5]", "p[2]", "p[{I} % 4]", "outf[i, {I} % 2]",
          "a[{I} % 5 - 5]", "float32(1e30)", "float32(math.inf)"),
    "D": ("d0", "0.5", "-1.25", "outd[i, {I} % 2]", "1e300"),
    "B": ("b0", "(t < 7)", "(i0 > 2)", "(tx % 2 == 0)", "True"),
}  # fmt: skip
DEVICE_LEAVES = {
    "I": ("u", "v", "0", "1", "2", "-3", "100"), "F": ("g", "float32(0.5)", "float32(-2)"), "D": ("0.5",),
    "B": ("(u < v)", "(u % 2 == 0)"),
}  # fmt: skip
CALLS = {"I": ("whole(int64({I}), int64({I}), {F})", "pair(int64({I}), int64({I}), {F})[0]")}
OWN = {"I": ("c[t]",), "F": ("s[t]", "s[t - {threads}]")}
ANY = {
    "I": ("c[{I} % {threads}]", "c[{I} % {threads} - {threads}]", "h[{I} % 8]", "c[t // 4]"),
    "F": ("s[{I} % {threads}]", "s[{threads} - 1 - t]", "s[t * 4 % {threads}]"),
}


@cache
def forms(kind: str, scope: Scope, depth: int) -> st.SearchStrategy[str]:
    """Return the templates of one kind of expression, the simplest first; depth: levels that may follow."""
    found = (DEVICE_LEAVES if scope.device else LEAVES)[kind]
    if kind == "I":
        found = (*scope.loops, *found)
    if not scope.device:
        found += (OWN if scope.own else ANY).get(kind, ())
    if depth > 0:
        found += INNER[kind] + (() if scope.device else CALLS.get(kind, ()))
        found += RACED.get(kind, ()) if scope.raced else ()
    return st.sampled_from([form for form in found if depth >= 0 or "{" not in form])


class Filler:
    """Fill the holes of templates, drawing what goes in."""

    def __init__(self, draw: Any, scope: Scope) -> None:
        self.draw, self.scope = draw, scope

    def __call__(self, template: str, depth: int | None = None) -> str:
        """Return a template with {I}, {F}, {D} and {B} filled by expressions up to `depth` levels deep.

        Not given, it is drawn: where all are deep, a kernel takes LLVM four times as long and says no more.
        """
        if depth is None:
            depth = self.draw(st.sampled_from((0, 1, 0, 2)))

        def fill(hole: re.Match[str]) -> str:
            if hole[1] == "threads":
                return str(self.scope.threads)
            return self(self.draw(forms(hole[1], self.scope, depth)), depth - 1)

        return re.sub(r"\{(\w+)\}", fill, template)


# ----------------------------------------------------------------------------------------- statements

ASSIGNMENTS = (
    "i0 = int64({I})", "f0 = {F}", "i1 += {I}", "d0 = {D}", "b0 = bool({B})", "j0 = int32({I})", "f1 -= {F}",
    "i0, i1 = i1, int64({I})", "d0, f0 = {D}, f1", "i0 = i0 if {B} else int64({I})", "i1 //= {I}",
    "f0 = f1 = {F}",
    "outi[i, {I} % 3] = {I}", "outf[i, {I} % 2] = {F}", "outd[i, {I} % 2 - 2] = {D}", "outi[i, -2] += {I}",
    "p[{I} % 4] = {F}", "p[1] += {F}", "q[{I} % 3] = {I}", "q[-1] = {I}", "outi[i, 2] = {F}", "q[0] ^= {I}",
    "i0, f1 = pair(int64({I}), int64({I}), {F})", "outf[i, -1] = {D}",
)  # fmt: skip
ATOMICS = (
    "cuda.atomic.{gi}(gi, {I} % 5, {I})", "cuda.atomic.{gl}(gl, {I} % 3 - 3, {I})",
    "cuda.atomic.{gf}(gf, {I} % 2, small({F}))", "cuda.atomic.inc(gu, {I} % 2, 7)",
    "i0 = int64(cuda.atomic.add(outi, (i, {I} % 3), {I}))", "i1 = int64(cuda.atomic.exch(outi, (i, 1), {I}))",
    "i0 = int64(cuda.atomic.cas(outi, (i, {I} % 3), {I}, {I}))", "f0 = cuda.atomic.max(outf, (i, 0), {F})",
    "f1 = cuda.atomic.add(outf, (i, {I} % 2), {F})", "d0 = cuda.atomic.min(outd, (i, 1), {D})",
    "cuda.atomic.nanmax(outf, (i, 0), {F})", "i1 = int64(cuda.atomic.xor(outi, (i, 2), {I}))",
)  # fmt: skip
OWN_CELLS = (
    "s[t] = {F}", "c[t] = {I}", "cuda.atomic.{h}(h, {I} % 8, {I})", "s[t - {threads}] += {F}",
    "i0 = int64(cuda.atomic.add(c, t, {I}))", "c[t - {threads}] = {I}",
)  # fmt: skip
RACED_STATEMENTS = (
    "i0 = int64(cuda.atomic.add(gi, {I} % 5, {I}))", "i1 = int64(cuda.atomic.exch(gl, {I} % 3, {I}))",
    "f0 = cuda.atomic.max(gf, {I} % 2, {F})", "i0 = int64(cuda.atomic.cas(h, {I} % 8, {I}, {I}))",
    "s[{I} % {threads}] = {F}", "c[{I} % {threads}] = {I}", "f1 = cuda.atomic.add(s, {I} % {threads}, {F})",
    "outi[{I} % 12, 0] = {I}", "i1 = int64(cuda.atomic.dec(gu, {I} % 2, 9))",
)  # fmt: skip
HERE = "cuda.activemask()"
EXCHANGES = (
    "i0 = int64(cuda.popc(cuda.ballot_sync({mask}, {B})))", "b0 = cuda.any_sync({mask}, {B})",
    "b0 = cuda.all_sync({mask}, {B})", "b0 = cuda.eq_sync({mask}, {B})",
    "i1 = int64(cuda.match_any_sync({mask}, {I} % 3))", "i1 = int64(cuda.match_all_sync({mask}, {I} % 2)[0])",
    "f0 = cuda.shfl_xor_sync({mask}, {F}, 0)", "cuda.syncwarp({mask})",
    "i0 = int64(cuda.shfl_sync(cuda.activemask(), int64({I}), cuda.ffs(cuda.activemask()) - 1))",
    "i0 = int64(cuda.lanemask_lt())",
)  # fmt: skip
SHUFFLES = (
    "f0 = cuda.shfl_down_sync(0xffffffff, {F}, 1)", "i0 = cuda.shfl_up_sync(-1, int64({I}), {I} % 5)",
    "d0 = cuda.shfl_xor_sync(0xffffffff, {D}, 16)", "j0 = cuda.shfl_sync(0xffffffff, int32({I}), {I} % 40)",
    "f1 = cuda.shfl_xor_sync(0xffffffff, {F}, {I} % 32)",
)  # fmt: skip
DEVICE_ASSIGNMENTS = ("u = int64({I})", "v += {I}", "g = {F}", "u, v = v, u", "g += {F}")
RANGES = (
    "{I} % 4", "3", "1, {I} % 6, 2", "{I} % 4, -1, -1", "{I} % 3, {I} % 7, {I} % 2 + 1",
    "{I} % 5, {I} % 5, {I} % 5 - 2 or 1",
)  # fmt: skip


@cache
def simple(scope: Scope) -> st.SearchStrategy[str]:
    """Return the templates of simple statements at a place."""
    if scope.device:
        return st.sampled_from(DEVICE_ASSIGNMENTS)
    mask = "0xffffffff" if scope.together else HERE
    of = dict(zip(("h", "gi", "gl", "gf"), scope.operations, strict=True))
    found = [*ASSIGNMENTS, *ATOMICS, *(OWN_CELLS if scope.own else ()), *EXCHANGES]
    found += RACED_STATEMENTS if scope.raced else ()
    if scope.together and not scope.returns and scope.threads % 32 == 0:
        found += SHUFFLES
    for name, text in {"mask": mask, **of}.items():
        found = [form.replace(f"{{{name}}}", text) for form in found]
    return st.sampled_from(found)


@cache
def kinds(scope: Scope) -> st.SearchStrategy[str]:
    """Return the names of the statements that may stand at a place."""
    found = ["simple"] * 6
    if scope.depth < 3:
        found += ["branch", "branch", "count", "spin"]
    if scope.breaks:
        found += ["break", "continue"]
    if scope.returns and not scope.together and scope.depth > 0:
        found += ["return"]
    return st.sampled_from(found)


@st.composite
def statement(draw: Any, scope: Scope) -> Tree:
    """Draw one statement with what it holds."""
    fill, kind = Filler(draw, scope), draw(kinds(scope))
    if kind == "simple":
        return [fill(draw(simple(scope)))]
    if kind == "branch":
        return draw(branch(scope))
    if kind == "count":
        return draw(count(scope))
    if kind == "spin":
        return draw(spin(scope))
    return [f"if {fill('{B}')}:", [scope.returns if kind == "return" else kind]]


@cache
def body(scope: Scope) -> st.SearchStrategy[Tree]:
    """Return the strategy for one to three statements, one or two deep inside."""
    most = 3 if scope.depth < 2 else 2
    return st.lists(statement(scope), min_size=1, max_size=most).map(lambda found: sum(found, []))


@st.composite
def branch(draw: Any, scope: Scope) -> Tree:
    """Draw an `if`, perhaps with `elif` and `else`."""
    fill, inside = Filler(draw, scope), scope.deeper()
    tree = [f"if {fill('{B}')}:", draw(body(inside))]
    arms = draw(st.integers(0, 2))
    if arms == 2:
        tree += [f"elif {fill('{B}')}:", draw(body(inside))]
    return tree + (["else:", draw(body(inside))] if arms else [])


@st.composite
def count(draw: Any, scope: Scope) -> Tree:
    """Draw a `for` over a range, a tuple, or a private array with its counts."""
    fill, name = Filler(draw, scope), f"k{scope.depth}"
    inside = scope.deeper(loops=(name, *scope.loops), breaks=True)
    what = draw(st.integers(0, 9))
    head = f"for {name} in range({fill(draw(st.sampled_from(RANGES)))}):"
    if what == 8:
        head = f"for {name} in ({fill('int64({I}), int64({I})')}):"
    if what == 9 and not scope.device:
        head = f"for e, {name} in enumerate(q, {fill('{I}')}):"
        inside = replace(inside, loops=("e", *inside.loops))
    return [head, draw(body(inside))]


@st.composite
def spin(draw: Any, scope: Scope) -> Tree:
    """Draw a `while` that counts up to a bound and may end before it."""
    fill, name = Filler(draw, scope), f"w{scope.depth}"
    inside = scope.deeper(loops=(name, *scope.loops), breaks=True)
    bound = fill(draw(st.sampled_from(["3", "({I} % 4)", "({I} % 5 + 1)"])))
    statements = [f"{name} += 1", *draw(body(inside))]
    if draw(st.booleans()):
        return [f"{name} = 0", "while True:", [f"if {name} >= {bound}:", ["break"], *statements]]
    also = draw(st.sampled_from(["", " and {B}", " and not {B}"]))
    return [f"{name} = 0", f"while {name} < {bound}{fill(also)}:", statements]


# -------------------------------------------------------------------------------------------- kernels


@dataclass(frozen=True)
class Case:
    """Hold a kernel's source, and the launch: grid, block and arguments."""

    source: str
    blocks: int = 1
    block: tuple[int, int] = (32, 1)
    n: int = 3
    x: tuple[int, ...] = (0, 1, 2, 3, 4)
    a: tuple[float, ...] = (0.0, 0.5, 1.0, -2.0, 3.0)
    arguments: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = self.blocks * self.block[0] * self.block[1]
        given = (
            np.array(self.a, np.float32), np.array(self.x, np.int32), np.zeros((rows, 2), np.float32),
            np.ones((rows, 3), np.int32), np.zeros((rows, 2)), np.zeros(5, np.int32), np.zeros(3, np.int64),
            np.zeros(2, np.float32), np.zeros(2, np.uint32), np.zeros(2, np.int32), self.n,
        )  # fmt: skip
        object.__setattr__(self, "arguments", given)

    def __repr__(self) -> str:
        launch = f"blocks={self.blocks}, block={self.block}, n={self.n}, x={self.x}, a={self.a}"
        return f"Case('''{self.source}''', {launch})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the whole source, line by line, where hypothesis shows a failing case."""
        printer.text(repr(self))


def printed(tree: Tree, depth: int = 1) -> str:
    """Return a tree as source."""
    return "".join(
        printed(part, depth + 1) if isinstance(part, list) else f"{'    ' * depth}{part}\n" for part in tree
    )


BARRIERS = (
    "cuda.syncthreads()", "i0 = int64(cuda.syncthreads_count({B}))", "b0 = cuda.syncthreads_or({B}) > 0",
    "j0 = cuda.syncthreads_and({B})",
)  # fmt: skip
TICKETS = (
    "i1 = int64(cuda.atomic.add(ticks, {I} % 2, {I}))",
    "i1 = int64(cuda.atomic.cas(ticks, 0, {I}, {I}))",
)


@st.composite
def segment(draw: Any, scope: Scope) -> Tree:
    """Draw what stands between two barriers, and the barrier behind it."""
    scope = replace(scope, own=draw(st.booleans()))
    fill = Filler(draw, scope)
    first = [fill(draw(st.sampled_from(TICKETS)))] if draw(st.integers(0, 5)) == 5 else []
    tree = draw(body(scope))
    if draw(st.integers(0, 3)) == 3:
        tree = [f"for r in range({draw(st.sampled_from(['2', 'b + 1', 'n % 4']))}):",
                [*first, *tree, "cuda.syncthreads()", *draw(segment(replace(scope, depth=1)))]]  # fmt: skip
        first = []
    return [*first, *tree, fill(draw(st.sampled_from(BARRIERS)))]


@st.composite
def device_body(draw: Any, result: str) -> Tree:
    """Draw the body of a device function that returns `result`."""
    return draw(body(Scope(device=True, depth=1, together=False, returns=f"return {result}")))


@st.composite
def cases(draw: Any, raced: bool = False) -> Case:
    """Draw a kernel with its launch."""
    block = draw(st.sampled_from(BLOCKS))
    floats = draw(st.sampled_from(["add", "max", "min"]))
    operations = (*(draw(st.sampled_from(COMMUTING)) for _ in range(3)), floats)
    leave = draw(st.sampled_from(["", "return"]))
    scope = Scope(block[0] * block[1], returns=leave, operations=operations, raced=raced)
    segments = draw(st.lists(segment(scope), min_size=1, max_size=3))
    head = HEAD.replace("{threads}", str(scope.threads))
    head = head.replace("{whole}", printed(draw(device_body("int64(v)"))).rstrip())
    head = head.replace("{pair}", printed(draw(device_body("u, g"))).rstrip())
    numbers = st.lists(st.integers(-9, 40) | st.integers(-(2**31), 2**31 - 1), min_size=5, max_size=5)
    reals = st.lists(st.floats(width=32) | st.sampled_from([0.5, -1.25, 3.0]), min_size=5, max_size=5)
    source = head + printed(sum(segments, [])) + TAIL
    blocks, n = draw(st.sampled_from([1, 1, 1, 2])), draw(st.integers(-3, 40))
    return Case(source, blocks, block, n, tuple(draw(numbers)), tuple(draw(reals)))
