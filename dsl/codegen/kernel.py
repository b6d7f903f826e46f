"""From SSA to machine code: the function that runs one warp from barrier to barrier, 32 lanes as a vector.

What it models: each basic block of WarpIR exists twice. The full form runs while all 32 lanes are there: no
masks, plain branches. The masked form runs otherwise: every block has a pending mask, and blocks run in
layout order, so the lowest block with waiting lanes is always next; that is reconvergence at the immediate
post-dominator. Where all lanes meet again, the full form goes on. A uniform value is a scalar, a known lane
pattern is its scalar base, anything else a vector. What it leaves out: the order of warps
(dsl/llvm/runtime.py) and everything beyond L1's door (gpusim/hierarchy.py). Checked by the same metrics as
dsl/interpreter/run.py, which judges it: trace and counters must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dsl.codegen import control, copies, tensor, values
from dsl.codegen import data as codegen_data
from dsl.codegen import memory as codegen_memory
from dsl.codegen import warp as codegen_warp
from dsl.llvm.layout import DONE, FAILED, Ctx, Error, Frame, Moved
from dsl.llvm.runtime import driver, trace_functions
from dsl.llvm.text import LANES, TYPES, Text, immediate, lanes_constant, vector
from dsl.passes.intervals import Intervals
from dsl.passes.shapes import Shapes
from dsl.passes.ssa import Phi, Ssa, constant_trips, loop_exits
from dsl.warpir import ir

STACK_ELEMENTS = 16
"""Private arrays that together have no more are LLVM stack slots, which become vector registers.

Others stay in the frame, and all of a kernel with mma: its fragments pass through memory anyway, and as
registers they would meet in thousands of phis, on which LLVM spends minutes. With 32, an array a piece, a
kernel of three arrays of 32 took 4.7 s to compile, and 0.2 s with 16; it runs as fast.
"""
UNROLLED_INSTRUCTIONS = 900
"""Of WarpIR, that loops over stack slots may become; beyond, all arrays stay in the frame.

flash_backward's 992 took 2.0 s to compile, and 1.0 s without, and run as fast; flash_forward has 808, and
would run 12 % slower.
"""
FLAGS = vector("i1")


@dataclass(frozen=True)
class CodeOptions:
    """Say how to make code: the block's shape, and what the launch asks for.

    counts_only leaves the data out; strict_index refuses negative indices; register_arrays names the private
    arrays that live in registers. needed: the SSA registers to compute; None means all. wide: for a memory
    instruction the (bytes, row of the counts) of the wider instructions that a compiler merges it into.
    """

    block: tuple[int, int, int]
    counts_only: bool = False
    strict_index: bool = False
    register_arrays: frozenset[str] = frozenset()
    needed: frozenset[int] | None = None
    wide: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)


@dataclass
class WarpCode:
    """Make the text of one kernel's module; `module()` is the only call from outside.

    While a block is being written: `block` is its number, `full` which form, `mask` and `bits` its lanes,
    `values` what is already in LLVM registers.
    """

    ssa: Ssa
    shapes: Shapes
    intervals: Intervals
    options: CodeOptions
    text: Text = field(default_factory=Text)
    block: int = 0
    full: bool = True
    mask: str = ""
    bits: str = "-1"

    def __post_init__(self) -> None:
        fn = self.ssa.fn
        self.fn = fn
        self.values: dict[tuple[int, bool], str] = {}
        self.slots: dict[int, str] = {}
        memory = [i for b in fn.blocks for i in b.instrs if isinstance(i, ir.Access)]
        self.sites = {id(i): n for n, i in enumerate(memory)}
        self.checks = [i for b in fn.blocks for i in b.instrs if isinstance(i, ir.Chk)]
        self.warp_ops = [i for b in fn.blocks for i in b.instrs if isinstance(i, ir.WarpOp)]
        moves = [i for b in fn.blocks for i in b.instrs if isinstance(i, ir.Move)]
        self.moves = {id(i): n for n, i in enumerate(moves)}
        self.copies = any(isinstance(i, ir.CpAsync) for i in moves) and not self.options.counts_only
        """Whether shared memory remembers who is copying to it."""
        self.collectives = [i for b in fn.blocks for i in b.instrs if isinstance(i, ir.Collective)]
        self._fragments = ""
        self.helpers: dict[str, str] = {}
        """Functions that the kernel calls beside those of dsl/llvm/runtime.py: name -> text."""
        self._check_numbers = {id(i): n for n, i in enumerate(self.checks)}
        threads = self.options.block[0] * self.options.block[1] * self.options.block[2]
        self.threads, self.n_warps = threads, -(-threads // LANES)
        self.local_frame_bytes = -(-fn.local_bytes // 4) * 4
        ends = {b: block.terminator for b, block in enumerate(fn.blocks)}
        self.bars = {b: end.target for b, end in ends.items() if isinstance(end, ir.Bar)}
        self.targets = sorted(set(self.bars.values()))
        self.masked = bool(self.shapes.divergent) or threads % LANES != 0
        self._joins = {self.ssa.ipdom.get(b, -1) for b in self.shapes.divergent}
        self._plan_frame()

    # -------------------------------------------------------------------------------------- layout

    def _plan_frame(self) -> None:
        """Place what outlives a barrier in the warp's frame: private arrays, then saved values."""
        offset = Frame.PENDING * 8 + 4 * len(self.fn.blocks)
        offset = -(-offset // 64) * 64
        self.poison = (offset, 0)
        self.array_at: dict[str, int] = {}
        for array in self.fn.local:
            self.array_at[array.name] = offset
            offset += -(-array.bytes * LANES // 64) * 64
        self.poison = (self.poison[0], offset - self.poison[0])
        self.saved_at: dict[int, int] = {}
        for target in self.targets:
            for index in sorted(self._live(target)):
                if index not in self.saved_at:
                    self.saved_at[index] = offset
                    offset += 64 * (1 + (8 * LANES) // 64)
        self.frame_bytes = -(-offset // 64) * 64

    def _live(self, target: int) -> set[int]:
        """Return the SSA registers to carry over a barrier that goes on at `target`."""
        live = self.ssa.live_in[target] | {p.dst.index for p in self.ssa.phis[target]}
        return {i for i in live if self.wanted(i)}

    def wanted(self, index: int) -> bool:
        """Tell whether an SSA register is computed at all (counting alone needs few)."""
        return self.options.needed is None or index in self.options.needed

    def _stack_arrays(self) -> list[ir.LocalArray]:
        """Return the private arrays that become stack slots: the smallest, as many as fit."""
        if any(isinstance(i, ir.Mma) for i in self.collectives) or self.options.counts_only:
            return []
        found, elements = [], 0
        for array in sorted(self.fn.local, key=lambda a: a.bytes // ir.BYTES[a.type]):
            elements += array.bytes // ir.BYTES[array.type]
            if elements <= STACK_ELEMENTS and array.name in self.options.register_arrays:
                found.append(array)
        return found

    def local_array(self, name: str) -> str:
        """Return the host pointer of this warp's copy of a private array.

        That is its stack slots in the full form, if it has any, and its place in the frame otherwise.
        """
        return self._stack[name] if self.full and name in self._stack else f"%{name}.frame"

    def local_start(self, name: str) -> int:
        """Return the byte offset of a private array in the thread's local frame."""
        return next(a.offset for a in self.fn.local if a.name == name)

    def number_of_site(self, instr: ir.Access) -> int:
        """Return the number of a memory instruction in program order."""
        return self.sites[id(instr)]

    def number_of_move(self, instr: ir.Move) -> int:
        """Return the number of an ldmatrix or a cp.async in program order."""
        return self.moves[id(instr)]

    def count_move(self, number: int, what: Moved, amount: str) -> None:
        """Add to what is counted of a move (i64)."""
        self.text.add_to(self.text.field("%moves", len(Moved) * number + what), amount)

    def number_of_check(self, instr: ir.Chk) -> int:
        """Return the number of an index check in program order."""
        return self._check_numbers[id(instr)]

    # -------------------------------------------------------------------------------------- values

    def kind(self, reg: ir.Reg) -> str:
        """Return the LLVM type that represents a register: a vector if it varies, else the scalar base."""
        scalar = TYPES[reg.type]
        return vector(scalar) if self.shapes.shape[reg.index].varying else scalar

    def define(self, reg: ir.Reg, value: str) -> None:
        """Bind an SSA register to an LLVM value, and keep it where other blocks can read it."""
        self.values[reg.index, self.shapes.shape[reg.index].varying] = value
        if reg.index in self.slots:
            self.text.put(f"store {self.kind(reg)} {value}, ptr {self.slots[reg.index]}")

    def reinterpreted(self, value: str, have: str, want: str, is_vector: bool) -> str:
        """Return a value's bits as another type of the same width."""
        a, b = TYPES[have], TYPES[want]
        if a == b:
            return value
        form = vector if is_vector else (lambda s: s)
        return self.text.do(f"bitcast {form(a)} {value} to {form(b)}")

    def raw(self, operand: ir.Operand, type_: str) -> str:
        """Return an operand as it is represented: a scalar (a pattern's base), or a vector if it varies."""
        if isinstance(operand, ir.Imm):
            return immediate(operand.value, type_)
        varying = self.shapes.shape[operand.index].varying
        key = (operand.index, varying)
        if key not in self.values:
            self.values[key] = self.text.do(f"load {self.kind(operand)}, ptr {self.slots[operand.index]}")
        return self.reinterpreted(self.values[key], operand.type, type_, varying)

    def vector(self, operand: ir.Operand, type_: str) -> str:
        """Return an operand as a vector of 32 lanes."""
        scalar = TYPES[type_]
        if isinstance(operand, ir.Imm):
            return f"splat ({scalar} {immediate(operand.value, type_)})"
        shape = self.shapes.shape[operand.index]
        if shape.pattern is None:
            return self.raw(operand, type_)
        key = (operand.index, True)
        if key not in self.values:
            base = TYPES[operand.type]
            value = self.text.splat(self.raw(operand, operand.type), base)
            if not shape.uniform:
                value = self.text.do(f"add {vector(base)} {value}, {lanes_constant(shape.pattern, base)}")
            self.values[key] = value
        return self.reinterpreted(self.values[key], operand.type, type_, True)

    # -------------------------------------------------------------------------------------- the module

    def module(self) -> str:
        """Return the text of the module: `warp`, `run_blocks` and what they need."""
        t = self.text
        self._bind()
        t.put(f"br label %{'dispatch' if self.targets else 'start'}")
        if self.targets:
            t.label("dispatch")
            cases = " ".join(f"i32 {bar + 1}, label %resume{bar}" for bar in self.bars)
            t.put(f"switch i32 %resume, label %start [ {cases} ]")
        t.label("start")
        self._enter(0)
        for bar, target in self.bars.items():
            t.label(f"resume{bar}")
            self.move_saved(target, save=False)
            self._enter(target)
        self._emit_full()
        if self.masked:
            for b in sorted(self._apart | self._meetings):
                self._emit_block(b, False)
            t.label(f"m{len(self.fn.blocks)}")
            self.leave(DONE)
        self._exit()
        return self._assemble()

    def _assemble(self) -> str:
        t = self.text
        body = "\n".join([*t.head, *t.lines])
        head = "define internal i32 @warp(ptr noalias %ctx, ptr noalias %frame, i32 %resume)"
        warp = f"{head} {{\nentry:\n{body}\n}}\n"
        begin = copies.prepare(self) if self.copies else ""
        run = driver(self.threads, self.frame_bytes, self.poison, len(self.fn.blocks), begin)
        declared = "\n".join(d for n, d in sorted(t.declared.items()) if not n.startswith("llvm.memset"))
        profile = '!0 = !{!"branch_weights", i32 2000, i32 1}\n!1 = !{!"branch_weights", i32 1, i32 2000}\n'
        return "\n".join(
            [trace_functions(), self._constants(), *self.helpers.values(), warp, run, declared, profile]
        )

    def _constants(self) -> str:
        """Return the text of the kernel's constant arrays; none where it reads none."""
        if not any(isinstance(i, ir.Ld) and i.space == "const" for b in self.fn.blocks for i in b.instrs):
            return ""
        data = self.fn.constant_data or b"\0"  # an array without elements has a place as well
        shown = "".join(f"\\{byte:02X}" for byte in data)
        kind = f'private unnamed_addr constant [{len(data)} x i8] c"{shown}", align 16'
        return f"{codegen_data.CONSTANTS} = {kind}\n"

    def _bind(self) -> None:
        """Load what every block uses from the context, and reserve slots for values blocks share."""
        t = self.text
        words = {
            "global": Ctx.GLOBAL, "shared": Ctx.SHARED, "params": Ctx.PARAMS, "execs": Ctx.EXECS,
            "sites": Ctx.SITES, "wraps": Ctx.WRAPS, "scratch": Ctx.SCRATCH, "moves": Ctx.MOVES,
        }  # fmt: skip
        for name, word in words.items():
            t.head.append(f"  %{name}.p = getelementptr i64, ptr %ctx, i64 {word:d}")
            t.head.append(f"  %{name} = load ptr, ptr %{name}.p")
        for index, reg in self.ssa.registers().items():
            if self.wanted(index) and self._shared(index):
                self.slots[index] = t.alloca(self.kind(reg))
        self._stack: dict[str, str] = {}
        on_stack = self._stack_arrays()
        for array in self.fn.local:
            place = f"getelementptr i8, ptr %frame, i64 {self.array_at[array.name]}"
            t.head.append(f"  %{array.name}.frame = {place}")
            if array in on_stack:
                count = array.bytes // ir.BYTES[array.type]
                self._stack[array.name] = t.alloca(f"[{count} x {vector(TYPES[array.type])}]", None)
        self._code = t.alloca("i32")
        self._span, self._copy = range(0), 0
        self._unrolled = self._loops_to_unroll()
        if self._unrolled_instructions() > UNROLLED_INSTRUCTIONS:
            self._stack, self._unrolled = {}, {}
        self._runs = {b: t.alloca("i64") for b in self._busy_blocks()}
        for header in self._unrolled:
            last = self.ssa.loops[header]
            self._joins -= set(range(header, last + 1))
            self._joins |= loop_exits(self.fn, header, last)
        self._apart, self._meetings = self._find_apart()

    def _find_apart(self) -> tuple[set[int], set[int]]:
        """Return the blocks that some lanes of a warp may run without the others, and where they meet again.

        Where all warps are full, lanes are apart from a divergent branch to the first join that lies on every
        way from it: blocks run in layout order, so all of them wait there before it runs.
        """
        if self.threads % LANES:
            return set(range(len(self.fn.blocks))), set()
        apart: set[int] = set()
        meetings: set[int] = set()
        for branch in self.shapes.divergent:
            ends = self._joins & set(self._behind(branch))
            reached: set[int] = set()
            ahead = set(ir.successors(self.fn.blocks[branch].terminator))
            while ahead:
                b = ahead.pop()
                if b in ends:
                    meetings.add(b)
                elif b not in reached:
                    reached.add(b)
                    ahead |= set(ir.successors(self.fn.blocks[b].terminator))
            apart |= reached
        return apart, meetings - apart

    def _behind(self, block: int) -> list[int]:
        """Return the blocks that every way from a block goes through, in order."""
        found = []
        while (block := self.ssa.ipdom.get(block, -1)) >= 0:
            found.append(block)
        return found

    def next_masked(self, block: int) -> int:
        """Return the block behind another one that has a masked form; the number of blocks if none has."""
        later = (b for b in self._apart | self._meetings if b > block)
        return min(later, default=len(self.fn.blocks))

    def _shared(self, index: int) -> bool:
        """Tell whether a value needs a slot: a phi, or a value that another block or its phis read."""
        return isinstance(self.ssa.defs[index][1], Phi) or index in self._read_elsewhere

    @cached_property
    def _read_elsewhere(self) -> set[int]:
        return set().union(*self.ssa.live_in)

    def fragments(self) -> str:
        """Return the memory that fragments of matrices pass through, one place for the whole kernel."""
        if not self._fragments:
            self._fragments = tensor.fragment_memory(self)
        return self._fragments

    def move_stack(self, save: bool) -> None:
        """Copy the stack slots of small private arrays to the frame (save: out of the full form), or back."""
        t = self.text
        for array in self.fn.local:
            if array.name not in self._stack:
                continue
            size = ir.BYTES[array.type]
            kind = vector(f"i{8 * size}")
            bases = (self._stack[array.name], f"%{array.name}.frame")
            for offset in range(0, array.bytes * LANES, size * LANES):
                places = [t.do(f"getelementptr i8, ptr {base}, i64 {offset}") for base in bases]
                source, sink = places if save else reversed(places)
                t.put(f"store {kind} {t.do(f'load {kind}, ptr {source}')}, ptr {sink}")

    def move_saved(self, target: int, save: bool) -> None:
        """Save to the frame (or load from it) what block `target` needs after a barrier."""
        t = self.text
        registers = self.ssa.registers()
        for index in sorted(self._live(target)):
            kind = self.kind(registers[index])
            place = t.do(f"getelementptr i8, ptr %frame, i64 {self.saved_at[index]}")
            source, sink = (self.slots[index], place) if save else (place, self.slots[index])
            t.put(f"store {kind} {t.do(f'load {kind}, ptr {source}')}, ptr {sink}")

    def _enter(self, target: int) -> None:
        """Go on at a block with the warp's live lanes, in the form that fits them."""
        t = self.text
        if target not in self._apart:
            self.move_stack(save=False)
            t.put(f"br label %u{target}")
            return
        live = t.do(f"load i32, ptr {t.field('%frame', Frame.LIVE)}")
        every, some = t.name("every"), t.name("some")
        t.put(f"br i1 {t.do(f'icmp eq i32 {live}, -1')}, label %{every}, label %{some}")
        t.label(every)
        self.move_stack(save=False)
        t.put(f"br label %u{target}")
        t.label(some)
        t.put(f"store i32 {live}, ptr {self.pending(target)}")
        t.put(f"br label %m{target}")

    def pending(self, block: int) -> str:
        return self.text.do(f"getelementptr i8, ptr %frame, i64 {Frame.PENDING * 8 + 4 * block}")

    def leave(self, code: int) -> None:
        self.text.put(f"store i32 {code}, ptr {self._code}")
        self.text.put("br label %exit")

    def fail(self, error: Error) -> None:
        """Stop the launch with an error code."""
        self.text.put(f"store i64 {error:d}, ptr {self.text.field('%ctx', Ctx.ERROR)}")
        self.leave_failed()

    def leave_failed(self) -> None:
        """Stop the launch; the error words are already set."""
        self.leave(FAILED)

    def _exit(self) -> None:
        """Add what the blocks counted to the launch's counters, and return."""
        t = self.text
        t.label("exit")
        for b, counter in self._runs.items():
            t.add_to(t.field("%execs", 3 * b), t.do(f"load i64, ptr {counter}"))
        t.put(f"ret i32 {t.do(f'load i32, ptr {self._code}')}")

    # -------------------------------------------------------------------------------------- one block

    def _emit_full(self) -> None:
        """Write the full forms.

        A short counted loop over stack slots is written once an iteration, so that LLVM sees constant places.
        """
        b = 0
        while b < len(self.fn.blocks):
            trips = self._unrolled.get(b)
            if trips is None:
                self._emit_block(b, True)
                b += 1
                continue
            last = self.ssa.loops[b]
            self._span = range(b, last + 1)
            for self._copy in range(trips):
                for inner in self._span:
                    self._emit_block(inner, True)
            self._copy = trips
            self._emit_last_test(b)
            self._span, self._copy, b = range(0), 0, last + 1

    def _emit_last_test(self, header: int) -> None:
        """Write the header's last run, which leaves the loop."""
        self._begin_full(header)
        block = self.fn.blocks[header]
        for instr in block.instrs:
            self._instruction(instr)
        leave = next(t for t in ir.successors(block.terminator) if t not in self._span)
        control.copy_phis(self, header, leave, None)
        self.text.put(f"br label %{self.label_of(leave)}")

    def label_of(self, target: int) -> str:
        """Return the label of a block's full form, seen from the block that is being written."""
        copy = self._copy + (target == self._span.start) if target in self._span else 0
        return f"u{target}" + (f"c{copy}" if copy else "")

    def _begin_full(self, b: int) -> None:
        self.block, self.full, self.values = b, True, {}
        self.mask, self.bits = "splat (i1 true)", "-1"
        self.text.label(f"u{b}" + (f"c{self._copy}" if self._copy else ""))
        self._count_run(b)

    def _loops_to_unroll(self) -> dict[int, int]:
        """Map headers to trips for short counted loops over a stack array that hold no other loop."""
        found = {}
        for header, last in self.ssa.loops.items():
            trips = constant_trips(self.ssa, header)
            inner = any(header < h <= last for h in self.ssa.loops)
            barrier = any(header <= t <= last for t in self.targets)
            if trips is None or trips > STACK_ELEMENTS or inner or barrier:
                continue
            instrs = [i for b in self.fn.blocks[header : last + 1] for i in b.instrs]
            if any(isinstance(i, ir.Ld | ir.St) and self._on_stack(i) for i in instrs):
                found[header] = trips
        return found

    def _unrolled_instructions(self) -> int:
        """Return how many instructions the loops to unroll become."""
        return sum(
            trips * sum(len(b.instrs) for b in self.fn.blocks[header : self.ssa.loops[header] + 1])
            for header, trips in self._unrolled.items()
        )

    def _on_stack(self, instr: ir.Ld | ir.St) -> bool:
        return instr.space == "local" and instr.array in self._stack

    def _emit_block(self, b: int, full: bool) -> None:
        if full:
            self._begin_full(b)
        else:
            self.block, self.full, self.values = b, False, {}
            self.text.label(f"m{b}")
            self._take_pending(b)
            if b in self._meetings:
                return
            self._count_run(b)
        block = self.fn.blocks[b]
        if block.step_parts:
            self._count_step(block.step_parts)
        for instr in block.instrs:
            self._instruction(instr)
        control.leave_block(self, b, block.terminator)

    def _take_pending(self, b: int) -> None:
        t = self.text
        pending = self.pending(b)
        self.bits = t.do(f"load i32, ptr {pending}")
        some = t.name("some")
        none = t.do(f"icmp eq i32 {self.bits}, 0")
        t.put(f"br i1 {none}, label %m{self.next_masked(b)}, label %{some}")
        t.label(some)
        t.put(f"store i32 0, ptr {pending}")
        if b in self._meetings:
            self.move_stack(save=False)
            t.put(f"br label %u{b}")
            return
        if b in self._joins:
            every, part = t.name("every"), t.name("part")
            t.put(f"br i1 {t.do(f'icmp eq i32 {self.bits}, -1')}, label %{every}, label %{part}")
            t.label(every)
            self.move_stack(save=False)
            t.put(f"br label %u{b}")
            t.label(part)
        self.mask = t.do(f"bitcast i32 {self.bits} to {FLAGS}")

    def _busy_blocks(self) -> list[int]:
        """Return the blocks of the innermost loops, those that are written out aside.

        Their full runs are counted in a register and added up when the warp stops; a register for each block
        of the function would cost six thousand phis in flash_forward, and a third of its compile time. Where
        LLVM is to turn counting loops into products, it needs those of all loops without a barrier.
        """
        loops = {header: range(header, last + 1) for header, last in self.ssa.loops.items()}
        free = [span for span in loops.values() if not any(bar in span for bar in self.bars)]
        if not self.options.counts_only:
            outer = [h for h in loops if h not in self._unrolled]
            free = [span for span in free if not any(h in span[1:] for h in outer)]
        return sorted({b for span in free for b in span})

    def _count_run(self, b: int) -> None:
        """Count a run of a block: a full one, or a partial one and its lanes."""
        t = self.text
        if self.full:
            t.add_to(self._runs.get(b) or t.field("%execs", 3 * b), "1")
            return
        t.add_to(t.field("%execs", 3 * b + 1), "1")
        lanes = t.intrinsic("ctpop", "i32", self.bits)
        t.add_to(t.field("%execs", 3 * b + 2), t.do(f"zext i32 {lanes} to i64"))

    def _count_step(self, parts: int) -> None:
        """Count a pass through a loop's header; stop the launch where no step is left or the host asks."""
        t = self.text
        place = t.field("%frame", Frame.STEPS)
        left = t.do(f"sub i64 {t.do(f'load i64, ptr {place}')}, {parts}")
        t.put(f"store i64 {left}, ptr {place}")
        least = t.do(f"load volatile i64, ptr {t.field('%ctx', Ctx.STOP)}")
        spun, fine = t.name("spun"), t.name("fine")
        t.put(f"br i1 {t.do(f'icmp slt i64 {left}, {least}')}, label %{spun}, label %{fine}, !prof !1")
        t.label(spun)
        t.put(f"store i64 {self.block}, ptr {t.field('%ctx', Ctx.ERROR_SITE)}")
        self.fail(Error.STEPS)
        t.label(fine)

    def _instruction(self, instr: ir.Instr) -> None:
        if isinstance(instr, ir.Access):
            codegen_memory.access(self, instr)
        elif isinstance(instr, ir.Chk):
            codegen_memory.check(self, instr)
        elif isinstance(instr, ir.WarpOp):
            codegen_warp.operation(self, instr)
        elif isinstance(instr, TensorInstr):
            _TENSOR[type(instr)](self, instr)
        elif self.wanted(instr.dst.index):
            self.define(instr.dst, values.value_of(self, instr))


TensorInstr = ir.Mma | ir.LdMatrix | ir.CpAsync | ir.CpCommit | ir.CpWait
_TENSOR: dict[type, Callable[[WarpCode, Any], None]] = {
    ir.Mma: tensor.multiply,
    ir.LdMatrix: tensor.load_matrix,
    ir.CpAsync: copies.copy,
    ir.CpCommit: copies.commit,
    ir.CpWait: copies.wait,
}
"""How to emit each instruction of dsl/warpir/tensor.py."""
