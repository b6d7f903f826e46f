"""WarpIR: a kernel as a control-flow graph over typed virtual registers.

What it models: the program that one thread of a kernel runs, in the vocabulary of PTX: registers that may be
assigned more than once, basic blocks, and one terminator a block. Nothing of Python is left in it, so a
second front end (PTX) can produce it and every analysis serves both.
What it leaves out: lanes, warps and masks (the engine and the interpreter add them), and all of the caches.
Which ncu metric checks it: none directly; the counts of its instructions become
`smsp__sass_thread_inst_executed_op_*`.

Rules that `verify` enforces:
- Block order is layout order. An edge goes forward in the list, or back to the header of the loop it is in;
  the blocks of a loop are contiguous, the header is its first block, and its one back edge leaves its last
  block. A divergent warp runs its lowest block first, which is reconvergence at the immediate post-dominator.
- A barrier is a terminator: `Bar(target)` waits, then goes on at `target`.
- Registers are typed; those that one instruction writes are of one type. An operand of another type than the
  instruction's, at the same width, is reinterpreted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

from dsl.warpir.tensor import CpAsync as CpAsync
from dsl.warpir.tensor import CpCommit as CpCommit
from dsl.warpir.tensor import CpWait as CpWait
from dsl.warpir.tensor import LdMatrix as LdMatrix
from dsl.warpir.tensor import Mma as Mma

BYTES = {
    "pred": 1, "u8": 1, "s8": 1, "u16": 2, "s16": 2,
    "u32": 4, "s32": 4, "f32": 4, "u64": 8, "s64": 8, "f64": 8,
    "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1,
}  # fmt: skip
FLOATS = ("f32", "f64", "f16", "bf16", "e4m3", "e5m2")
REGISTER_TYPES = ("pred", "s32", "u32", "s64", "u64", "f32", "f64", "f16", "bf16", "e4m3", "e5m2")


class Loc(NamedTuple):
    """Say which source line an instruction comes from."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Reg:
    """Name one virtual register of a thread: `type` is one of REGISTER_TYPES, `name` is for people."""

    index: int
    type: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Imm:
    """Hold a constant; the instruction that uses it gives it its type."""

    value: int | float | bool


Operand = Reg | Imm


@dataclass(frozen=True, slots=True)
class Alu:
    """Compute dst = op(srcs) in `type`.

    Integer ops: add sub mul div rem (truncating, as PTX) floordiv floormod (as Python) and or xor not shl shr
    min max neg abs mov popc brev clz (of the type's width, results in the same type). Float ops: add sub mul
    fma fma_sat fma_rm div sqrt rsqrt rcp ex2 lg2 neg abs min max mov copysign floor ceil trunc rint, and the
    library calls named in `MATH_CALLS`; f16 and bf16 have add sub mul fma neg abs min max mov floor ceil
    trunc rint. min and max of floats return the other operand when one is NaN (PTX min.f32). Predicates: and
    or xor not mov. `tag` refines how the instruction becomes machine code, see dsl/warpir/machine.py.
    """

    op: str
    type: str
    dst: Reg
    srcs: tuple[Operand, ...]
    loc: Loc
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Cvt:
    """Convert src from `from_type` to `to_type`.

    Float to int truncates toward zero and saturates; NaN gives 0, of an f64 and as 64 bits the highest bit
    alone. Anything to float rounds once to nearest even.
    "pred" as a target tests src != 0; as a source it is 0 or 1. Too large a number for f16, bf16 and e5m2
    becomes infinity, for e4m3 NaN; with `saturate` (PTX satfinite) the largest finite number. `tag` is Alu's.
    `rounding`, other than rn to bf16 alone: rz, rd or ru (toward zero, down, up).
    """

    dst: Reg
    to_type: str
    src: Operand
    from_type: str
    loc: Loc
    saturate: bool = False
    tag: str = ""
    rounding: str = "rn"


@dataclass(frozen=True, slots=True)
class Bitcast:
    """Reinterpret the bits of src (of `from_type`) as `to_type` of the same width.

    u8 and u16 are the low bits of a u32 register, zeros above them as a result.
    """

    dst: Reg
    to_type: str
    src: Operand
    from_type: str
    loc: Loc


@dataclass(frozen=True, slots=True)
class Setp:
    """Compare: dst (pred) = a op b in `type`; op is lt le gt ge eq ne. A NaN makes all but `ne` false."""

    op: str
    type: str
    dst: Reg
    a: Operand
    b: Operand
    loc: Loc


@dataclass(frozen=True, slots=True)
class Selp:
    """Select: dst = a where cond holds, else b."""

    type: str
    dst: Reg
    a: Operand
    b: Operand
    cond: Operand
    loc: Loc


@dataclass(frozen=True, slots=True)
class Sreg:
    """Read a special register (s32): tid.x|y|z, ntid.x|y|z, ctaid.x|y|z, nctaid.x|y|z, laneid.

    Lanemask_lt is u32.
    """

    dst: Reg
    name: str
    loc: Loc


@dataclass(frozen=True, slots=True)
class LdParam:
    """Read a launch parameter: a scalar by its name, or a word of an array A.

    Those are `A.base` (u64 address), `A.shape.0` (s64, elements) and `A.stride.0` (s64, bytes).
    """

    dst: Reg
    name: str
    loc: Loc


DIVISOR = "a divisor"


@dataclass(frozen=True, slots=True)
class Chk:
    """Check one index: dst = index, or index + extent where it is negative; all s64.

    An index outside [-extent, extent) is an error. `array` and `dim` name the place for the message.
    numba.cuda wraps a negative index the same way. Where `array` is DIVISOR the index is 1 for a divisor of
    zero, else 0, and the extent 1: kernels made with debug=True check their divisions.
    """

    dst: Reg
    index: Operand
    extent: Operand
    array: str
    dim: int
    loc: Loc


@dataclass(frozen=True, slots=True)
class Ld:
    """Load one element into each of dsts from `addr` (s64) on in a space.

    space: global (byte address), shared (byte offset in the block), local (byte offset in the thread) or, of
    loads alone, const (byte offset in the kernel's constants).
    `type` is the element type in memory; u8, s8, u16, s16 and pred widen into the register (u32, s32, pred).
    Two or four elements side by side, 16 bytes at most, are one access of a vector (PTX ld.v2, ld.v4): one
    request, aligned to its `access_bytes`. An address that is not is an error.
    `cache` is PTX's hint: "" or ca (all levels), cg and cv (L2 only), cs and lu (all levels, as ca here).
    """

    space: str
    type: str
    dsts: tuple[Reg, ...]
    addr: Operand
    array: str
    loc: Loc
    cache: str = ""


@dataclass(frozen=True, slots=True)
class St:
    """Store `values` side by side from `addr` on, spaces, types and vectors as in Ld.

    Where lanes collide, the highest lane's stay.

    `cache` is PTX's hint (wb, cg, cs, wt); stores go through L1 to L2 with any of them.
    """

    space: str
    type: str
    values: tuple[Operand, ...]
    addr: Operand
    array: str
    loc: Loc
    cache: str = ""


@dataclass(frozen=True, slots=True)
class Atom:
    """Do one atomic: *addr = op(*addr, value), lanes in ascending order.

    op is add, max, min, and, or, xor, exch, inc (old >= value ? 0 : old + 1), dec (old == 0 or old > value ?
    value : old - 1) or cas (old == compare ? value : old). dst gets the old value; with it this is an ATOM,
    without it (None) a RED. A float max or min ignores NaN (numba's nanmax and nanmin); max_nan and min_nan,
    of floats alone, keep a NaN that is in memory and ignore one that is given (numba's max and min).
    `compare` is for cas alone.
    """

    op: str
    space: str
    type: str
    dst: Reg | None
    addr: Operand
    value: Operand
    array: str
    loc: Loc
    compare: Operand | None = None


@dataclass(frozen=True, slots=True)
class Shfl:
    """Exchange a register between lanes: dst = src of another lane of the warp.

    mode: idx (lane `lane`), up (own lane - lane), down (own lane + lane) or bfly (own lane ^ lane); all
    modulo nothing: a lane past the warp's ends gives the own value (idx takes lane % 32). `mask` (u32) names
    the lanes that take part: a named lane that is not active here, an active one that is not named, and a
    source lane that does not take part are errors.
    """

    mode: str
    type: str
    dst: Reg
    src: Operand
    lane: Operand
    mask: Operand
    loc: Loc


@dataclass(frozen=True, slots=True)
class Vote:
    """Vote among the lanes that `mask` names (checked as in Shfl).

    mode: all, any, eq (all predicates are the same) with a pred dst, or ballot with a u32 dst: one bit for
    each named lane whose predicate holds.
    """

    mode: str
    dst: Reg
    pred: Operand
    mask: Operand
    loc: Loc


@dataclass(frozen=True, slots=True)
class Match:
    """Compare bits among the lanes that `mask` names (checked as in Shfl); dst is u32.

    mode any: the named lanes with the same bits as this one. mode all: `mask` if all named lanes have the
    same bits, else 0.
    """

    mode: str
    type: str
    dst: Reg
    src: Operand
    mask: Operand
    loc: Loc


@dataclass(frozen=True, slots=True)
class ActiveMask:
    """Read the lanes of the warp that are active here (u32)."""

    dst: Reg
    loc: Loc


@dataclass(frozen=True, slots=True)
class SyncWarp:
    """Wait for the lanes that `mask` names; lanes run in lockstep here, so it only checks them as in Shfl."""

    mask: Operand
    loc: Loc


@dataclass(frozen=True, slots=True)
class BarResult:
    """Read what the barrier just passed gathered from `Bar.pred` (s32); the first instruction of its target.

    op: count (threads whose predicate held), and (1 if it held for every thread that arrived), or (1 if for
    any).
    """

    op: str
    dst: Reg
    loc: Loc


Access = Ld | St | Atom
WarpOp = Shfl | Vote | Match | SyncWarp
Move = LdMatrix | CpAsync
"""Instructions that move memory as no load or store does; like those, each has a number in program order."""
Collective = Mma | LdMatrix
"""Instructions that need all 32 lanes of a warp together."""
Instr = (
    Alu | Cvt | Bitcast | Setp | Selp | Sreg | LdParam | Chk | Ld | St | Atom
    | Shfl | Vote | Match | ActiveMask | SyncWarp | BarResult
    | Mma | LdMatrix | CpAsync | CpCommit | CpWait
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Jmp:
    """Go to block `target` (index in the function)."""

    target: int
    loc: Loc


@dataclass(frozen=True, slots=True)
class Bra:
    """Go to `if_true` where cond holds, else to `if_false`."""

    cond: Operand
    if_true: int
    if_false: int
    loc: Loc


@dataclass(frozen=True, slots=True)
class Bar:
    """Wait until every live thread of the block is here, then go to `target`.

    `pred`, if any, is gathered over the block for a BarResult at the target.
    """

    target: int
    loc: Loc
    pred: Operand | None = None


@dataclass(frozen=True, slots=True)
class Ret:
    """End the thread.

    `at_end`: this is the end of the kernel's body, not a return before it. A thread that gets there while
    others of its block wait at a barrier has gone past that barrier, and is missing there.
    """

    loc: Loc
    at_end: bool = False


Terminator = Jmp | Bra | Bar | Ret


STEP_PARTS = 1000
"""Passes through the header of a counted loop that are one step, as one pass of a while loop is."""
SHORT_LOOP = 65_536
"""Passes of a loop of known length up to which they are not counted."""


@dataclass
class Block:
    """Hold straight-line instructions and the terminator, which is None while the block is being built.

    `may_spin` marks the header of a loop with no bound known (while), `may_be_long` that of a counted one
    whose length is not known or more than SHORT_LOOP.
    """

    instrs: list[Instr] = field(default_factory=list)
    terminator: Terminator | None = None
    may_spin: bool = False
    may_be_long: bool = False

    @property
    def step_parts(self) -> int:
        """Return what a pass through the block counts, in parts of a step."""
        return STEP_PARTS if self.may_spin else int(self.may_be_long)


@dataclass(frozen=True)
class Param:
    """Describe a kernel parameter: a scalar (ndim None) or an array, of type "record" if it holds records.

    `layout` is C (contiguous), F or A (any strides).
    """

    name: str
    type: str
    ndim: int | None = None
    layout: str = "C"


@dataclass(frozen=True)
class SharedArray:
    """Place a shared array at a byte `offset` of the block's shared memory.

    type: of the numbers that its elements of `element_bytes` are made of. A dynamic one has bytes 0 and
    starts at `offset` too.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    loc: Loc
    element_bytes: int


@dataclass(frozen=True)
class ConstantArray:
    """Place a constant array at byte `offset` of the kernel's constants; type as in SharedArray."""

    name: str
    type: str
    offset: int
    data: bytes
    loc: Loc
    element_bytes: int


@dataclass(frozen=True)
class LocalArray:
    """Place a thread's private array at byte `offset` of its local frame; type as in SharedArray."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    loc: Loc
    element_bytes: int


@dataclass(frozen=True)
class Need:
    """Ask of a launch's GPU a compute capability, (major, minor), for an instruction named as in kernels."""

    instruction: str
    capability: tuple[int, int]
    loc: Loc


@dataclass(frozen=True)
class Multiple:
    """Ask of a launch that an array's rows hold a whole number of `of` bytes, as a view of them has to.

    extent: the launch parameter that is the length of a row, in elements of `element_bytes`. view: what the
    rows are taken as, for the message.
    """

    array: str
    extent: str
    element_bytes: int
    of: int
    view: str
    loc: Loc


@dataclass
class Function:
    """Hold one kernel: parameters, arrays, and blocks in layout order; block 0 is the entry."""

    name: str
    file: str
    params: tuple[Param, ...]
    blocks: list[Block]
    shared: tuple[SharedArray, ...] = ()
    local: tuple[LocalArray, ...] = ()
    n_regs: int = 0
    multiples: tuple[Multiple, ...] = ()
    needs: tuple[Need, ...] = ()
    constants: tuple[ConstantArray, ...] = ()

    @property
    def static_shared_bytes(self) -> int:
        """Return the bytes of static shared memory (the dynamic part starts there)."""
        return max((a.offset + a.bytes for a in self.shared), default=0)

    @property
    def constant_data(self) -> bytes:
        """Return the bytes of the kernel's constant arrays, each at its offset."""
        whole = bytearray(max((a.offset + len(a.data) for a in self.constants), default=0))
        for a in self.constants:
            whole[a.offset : a.offset + len(a.data)] = a.data
        return bytes(whole)

    @property
    def local_bytes(self) -> int:
        """Return the bytes of one thread's local frame."""
        return max((a.offset + a.bytes for a in self.local), default=0)


MATH_CALLS = (
    "exp", "log", "exp2", "log2", "log10", "sin", "cos", "tan", "tanh",
    "pow", "fmod", "atan2", "erf", "log1p", "expm1", "cbrt",
    "acos", "asin", "atan", "acosh", "asinh", "atanh", "cosh", "sinh", "erfc", "tgamma", "lgamma",
    "hypot", "remainder", "nextafter", "ldexp",
)  # fmt: skip
"""Library calls. The second operand of ldexp is a whole number in the float type of the first."""


def successors(terminator: Terminator | None) -> tuple[int, ...]:
    """List the blocks a terminator may go to, (true, false) for a branch; none where it is None."""
    match terminator:
        case Jmp(target=t) | Bar(target=t):
            return (t,)
        case Bra(if_true=t, if_false=f):
            return (t, f)
    return ()


_OPERANDS: dict[type, tuple[str, ...]] = {
    Alu: ("srcs",),
    Cvt: ("src",),
    Bitcast: ("src",),
    Setp: ("a", "b"),
    Selp: ("a", "b", "cond"),
    Chk: ("index", "extent"),
    Ld: ("addr",),
    St: ("values", "addr"),
    Atom: ("value", "addr", "compare"),
    Shfl: ("src", "lane", "mask"),
    Vote: ("pred", "mask"),
    Match: ("src", "mask"),
    SyncWarp: ("mask",),
    Mma: ("a", "b", "c"),
    LdMatrix: ("addr",),
    CpAsync: ("to", "addr", "taken"),
    Bra: ("cond",),
    Bar: ("pred",),
}
"""The fields that hold operands, or tuples of operands; one that is None is not there."""


def elements(instr: Access) -> int:
    """Return how many elements side by side an access moves in each lane: 1, or those of a vector."""
    return len(instr.dsts) if isinstance(instr, Ld) else len(instr.values) if isinstance(instr, St) else 1


def access_bytes(instr: Access) -> int:
    """Return the bytes that an access moves in each lane (1 to 16), which its address is a multiple of."""
    return elements(instr) * BYTES[instr.type]


def sources(instr: Instr | Terminator | None) -> tuple[Operand, ...]:
    """List the operands an instruction or a terminator reads; none where it is None."""
    operands: list[Operand] = []
    for name in _OPERANDS.get(type(instr), ()):
        found = getattr(instr, name)
        if isinstance(found, tuple):
            operands += found
        elif found is not None:
            operands.append(found)
    return tuple(operands)


Node = TypeVar("Node", bound=Instr | Terminator)


def with_sources(instr: Node, read: Callable[[Operand], Operand]) -> Node:
    """Return a copy of an instruction or a terminator with every operand mapped by `read`."""
    found = {n: getattr(instr, n) for n in _OPERANDS.get(type(instr), ())}
    changed: Any = {
        n: tuple(map(read, o)) if isinstance(o, tuple) else read(o) for n, o in found.items() if o is not None
    }
    return replace(instr, **changed) if changed else instr


def destinations(instr: Instr | Terminator | None) -> tuple[Reg, ...]:
    """List the registers an instruction writes, most often one; a terminator writes none."""
    dsts: tuple[Reg, ...] | None = getattr(instr, "dsts", None)
    if dsts is not None:
        return dsts
    dst: Reg | None = getattr(instr, "dst", None)
    return () if dst is None else (dst,)


def with_destinations(instr: Node, dsts: tuple[Reg, ...]) -> Node:
    """Return a copy of an instruction that writes other registers, as many as before."""
    changed: Any = {"dsts": dsts} if hasattr(instr, "dsts") else {"dst": dsts[0]} if dsts else {}
    return replace(instr, **changed) if changed else instr


class MalformedIR(AssertionError):
    """Say which rule of WarpIR a front end broke; a defect of this project, never of a user's kernel."""


def loops(fn: Function) -> dict[int, int]:
    """Map each loop header to the last block of its loop (the block with the farthest back edge)."""
    last: dict[int, int] = {}
    for i, block in enumerate(fn.blocks):
        for s in successors(block.terminator):
            if s <= i:
                last[s] = max(i, last.get(s, i))
    return last


def verify(fn: Function) -> None:
    """Raise MalformedIR if the function breaks a rule of this module's docstring."""
    n = len(fn.blocks)
    for i, block in enumerate(fn.blocks):
        if block.terminator is None:
            raise MalformedIR(f"{fn.name}: block {i} has no terminator")
        for s in successors(block.terminator):
            if not 0 <= s < n:
                raise MalformedIR(f"{fn.name}: block {i} goes to {s}, there are {n} blocks")
    spans = loops(fn)
    for i, block in enumerate(fn.blocks):
        for s in successors(block.terminator):
            if s <= i and spans[s] != i:
                raise MalformedIR(f"{fn.name}: the loop at {s} has two back edges, from {i} and {spans[s]}")
            for header, last in spans.items():
                if header < s <= last and not header <= i <= last:
                    loop = f"the loop {header}..{last}"
                    raise MalformedIR(f"{fn.name}: block {i} enters {loop} at {s}, not at its header")


def is_dynamic(fn: Function, array: str) -> bool:
    """Tell whether an array of a function lies in dynamic shared memory."""
    return any(a.name == array and a.bytes == 0 for a in fn.shared)


def dump(fn: Function) -> str:
    """Print the function as text, one instruction a line, for people."""
    lines = [f"kernel {fn.name}({', '.join(p.name for p in fn.params)})"]
    for i, block in enumerate(fn.blocks):
        loop = " may spin" if block.may_spin else " may be long" if block.may_be_long else ""
        lines.append(f"block {i}{loop}:")
        lines += [f"  {_shown_instr(ins)}" for ins in block.instrs]
        lines.append(f"  {_shown_instr(block.terminator)}" if block.terminator else "  no terminator")
    return "\n".join(lines)


def _shown_instr(ins: Instr | Terminator) -> str:
    values = {f.name: getattr(ins, f.name) for f in fields(ins)}
    shown = [f"{name}={_shown(v)}" for name, v in values.items() if name != "loc" and v != ""]
    return f"{type(ins).__name__.lower()} {' '.join(shown)}  ; line {ins.loc.line}"


def _shown(x: object) -> str:
    if isinstance(x, tuple):
        return f"({', '.join(map(_shown, x))})"
    if isinstance(x, Reg):
        return f"%{x.index}:{x.type}" + (f"({x.name})" if x.name else "")
    return repr(x.value) if isinstance(x, Imm) else str(x)
