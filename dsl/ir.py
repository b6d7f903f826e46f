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
- Registers are typed; an operand of another type than the instruction's, at the same width, is reinterpreted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

BYTES = {
    "pred": 1, "u8": 1, "s8": 1, "u16": 2, "s16": 2,
    "u32": 4, "s32": 4, "f32": 4, "u64": 8, "s64": 8, "f64": 8,
}  # fmt: skip
REGISTER_TYPES = ("pred", "s32", "u32", "s64", "u64", "f32", "f64")


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
    min max neg abs mov. Float ops: add sub mul fma fma_sat fma_rm div sqrt rsqrt rcp ex2 lg2 neg abs min max
    mov copysign floor ceil trunc rint, and the library calls named in `MATH_CALLS`. min and max of floats
    return the other operand when one is NaN (PTX min.f32). Predicates: and or xor not mov. `tag` refines how
    the instruction becomes machine code, see dsl/machine.py.
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

    Float to int truncates toward zero and saturates, int to float rounds to nearest even.
    "pred" as a target tests src != 0; as a source it is 0 or 1.
    """

    dst: Reg
    to_type: str
    src: Operand
    from_type: str
    loc: Loc


@dataclass(frozen=True, slots=True)
class Bitcast:
    """Reinterpret the bits of src (of `from_type`) as `to_type` of the same width."""

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
    """Read a special register (s32): tid.x|y|z, ntid.x|y|z, ctaid.x|y|z, nctaid.x|y|z, laneid."""

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


@dataclass(frozen=True, slots=True)
class Chk:
    """Check one index: dst = index, or index + extent where it is negative; all s64.

    An index outside [-extent, extent) is an error. `array` and `dim` name the place for the message.
    numba.cuda wraps a negative index the same way.
    """

    dst: Reg
    index: Operand
    extent: Operand
    array: str
    dim: int
    loc: Loc


@dataclass(frozen=True, slots=True)
class Ld:
    """Load dst from `addr` (s64) in a space.

    space: global (byte address), shared (byte offset in the block) or local (byte offset in the thread).
    `type` is the element type in memory; u8, s8, u16, s16 and pred widen into the register (u32, s32, pred).
    """

    space: str
    type: str
    dst: Reg
    addr: Operand
    array: str
    loc: Loc


@dataclass(frozen=True, slots=True)
class St:
    """Store `value` to `addr`, spaces and types as in Ld; where lanes collide, the highest lane's stays."""

    space: str
    type: str
    value: Operand
    addr: Operand
    array: str
    loc: Loc


@dataclass(frozen=True, slots=True)
class Atom:
    """Do one atomic: *addr = op(*addr, value), lanes in ascending order; op is add, max or min.

    dst gets the old value; with it this is an ATOM, without it (None) a RED. A float max ignores NaN, as
    numba.cuda's does.
    """

    op: str
    space: str
    type: str
    dst: Reg | None
    addr: Operand
    value: Operand
    array: str
    loc: Loc


Access = Ld | St | Atom
Instr = Alu | Cvt | Bitcast | Setp | Selp | Sreg | LdParam | Chk | Ld | St | Atom


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
    """Wait until every live thread of the block is here, then go to `target`."""

    target: int
    loc: Loc


@dataclass(frozen=True, slots=True)
class Ret:
    """End the thread."""

    loc: Loc


Terminator = Jmp | Bra | Bar | Ret


@dataclass
class Block:
    """Hold straight-line instructions and the terminator, which is None while the block is being built.

    `may_spin` marks the header of a loop with no bound known (while).
    """

    instrs: list[Instr] = field(default_factory=list)
    terminator: Terminator | None = None
    may_spin: bool = False


@dataclass(frozen=True)
class Param:
    """Describe a kernel parameter: a scalar (ndim None) or an array.

    `layout` is C (contiguous), F or A (any strides).
    """

    name: str
    type: str
    ndim: int | None = None
    layout: str = "C"


@dataclass(frozen=True)
class SharedArray:
    """Place a shared array at a byte `offset` of the block's shared memory.

    A dynamic one has bytes 0 and starts at `offset` too.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    loc: Loc


@dataclass(frozen=True)
class LocalArray:
    """Place a thread's private array at byte `offset` of its local frame."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
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

    @property
    def static_shared_bytes(self) -> int:
        """Return the bytes of static shared memory (the dynamic part starts there)."""
        return max((a.offset + a.bytes for a in self.shared), default=0)

    @property
    def local_bytes(self) -> int:
        """Return the bytes of one thread's local frame."""
        return max((a.offset + a.bytes for a in self.local), default=0)


MATH_CALLS = (
    "exp", "log", "exp2", "log2", "log10", "sin", "cos", "tan", "tanh",
    "pow", "fmod", "atan2", "erf", "log1p", "expm1",
)  # fmt: skip


def successors(terminator: Terminator | None) -> tuple[int, ...]:
    """List the blocks a terminator may go to, (true, false) for a branch; none where it is None."""
    match terminator:
        case Jmp(target=t) | Bar(target=t):
            return (t,)
        case Bra(if_true=t, if_false=f):
            return (t, f)
    return ()


def sources(instr: Instr | Terminator | None) -> tuple[Operand, ...]:
    """List the operands an instruction or a terminator reads; none where it is None."""
    match instr:
        case Alu(srcs=srcs):
            return srcs
        case Cvt(src=src) | Bitcast(src=src):
            return (src,)
        case Setp(a=a, b=b):
            return (a, b)
        case Selp(a=a, b=b, cond=cond):
            return (a, b, cond)
        case Chk(index=index, extent=extent):
            return (index, extent)
        case Ld(addr=addr):
            return (addr,)
        case St(value=value, addr=addr) | Atom(value=value, addr=addr):
            return (value, addr)
        case Bra(cond=cond):
            return (cond,)
    return ()


def destination(instr: Instr | Terminator | None) -> Reg | None:
    """Return the register an instruction writes, or None; a terminator writes none."""
    return getattr(instr, "dst", None)


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


def dump(fn: Function) -> str:
    """Print the function as text, one instruction a line, for people."""
    lines = [f"kernel {fn.name}({', '.join(p.name for p in fn.params)})"]
    for i, block in enumerate(fn.blocks):
        lines.append(f"block {i}{' may spin' if block.may_spin else ''}:")
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
