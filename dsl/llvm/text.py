"""LLVM text: a small emitter with fresh names, WarpIR's types in LLVM's words, and the way to machine code.

What it models: nothing of a GPU. llvmlite's own builder still writes typed pointers beside opaque ones, which
LLVM refuses since version 17, so the text is written here; parsing, optimising and linking are llvmlite's.
Checked by no metric.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from dsl.warpir.formats import FORMATS, encode

LANES = 32
TYPES = {
    "pred": "i1", "u8": "i8", "s8": "i8", "u16": "i16", "s16": "i16", "u32": "i32", "s32": "i32",
    "u64": "i64", "s64": "i64", "f32": "float", "f64": "double",
    **{name: f"i{form.bits}" for name, form in FORMATS.items()},
}  # fmt: skip
"""LLVM's type of each of WarpIR's. A narrow float is its code: x86 has no arithmetic for them, and what LLVM
puts in its place calls functions that only some C libraries have."""
SUFFIX = {"i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "float": "f32", "double": "f64"}


def vector(scalar: str) -> str:
    """Return the LLVM type of one value per lane."""
    return f"<{LANES} x {scalar}>"


def constant(value: int | float | bool, scalar: str) -> str:
    """Return a constant of an LLVM scalar type as text; a float is rounded to the type first."""
    if scalar in ("float", "double"):
        number = float(value)
        if scalar == "float":
            number = struct.unpack("<f", struct.pack("<f", _in_float_range(number)))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if scalar == "i1":
        return "true" if value else "false"
    bits = int(scalar[1:])
    number = int(value) & ((1 << bits) - 1)
    return str(number - (1 << bits) if number >> (bits - 1) else number)


def immediate(value: int | float | bool, type_: str) -> str:
    """Return a constant of one of WarpIR's types as text; a narrow float is its code."""
    form = FORMATS.get(type_)
    return constant(value if form is None else encode(float(value), form), TYPES[type_])


def _in_float_range(number: float) -> float:
    """Return infinity for a double that rounds past the largest float (struct would raise)."""
    if abs(number) >= 3.4028235677973366e38 and number == number:
        return float("inf") if number > 0 else float("-inf")
    return number


def lanes_constant(values: tuple[int, ...], scalar: str) -> str:
    """Return a vector constant as text."""
    return "<" + ", ".join(f"{scalar} {constant(v, scalar)}" for v in values) + ">"


class Text:
    """Collect the lines of one LLVM function.

    `do` appends an instruction and returns the name of its result.
    """

    def __init__(self) -> None:
        self.head: list[str] = []
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self._count = 0

    def name(self, stem: str = "t") -> str:
        """Return a new name without the leading %."""
        self._count += 1
        return f"{stem}{self._count}"

    def do(self, instruction: str) -> str:
        """Append an instruction that has a result; return the result."""
        result = f"%{self.name()}"
        self.lines.append(f"  {result} = {instruction}")
        return result

    def put(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def label(self, name: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{name}:")

    def alloca(self, kind: str, init: str | None = "zeroinitializer") -> str:
        """Reserve stack space at the function's entry, holding `init`."""
        result = f"%{self.name('a')}"
        self.head.append(f"  {result} = alloca {kind}, align 64")
        if init is not None:
            self.head.append(f"  store {kind} {init}, ptr {result}")
        return result

    def call(self, result: str, function: str, *args: tuple[str, str]) -> str:
        """Call a function with (type, value) arguments; declare it once for the module."""
        kinds = ", ".join(kind for kind, _ in args)
        self.declared[function] = f"declare {result} @{function}({kinds})"
        text = f"call {result} @{function}({', '.join(f'{kind} {value}' for kind, value in args)})"
        if result == "void":
            self.put(text)
            return ""
        return self.do(text)

    def intrinsic(self, name: str, kind: str, *values: str) -> str:
        """Call an LLVM intrinsic whose arguments and result have one type."""
        scalar = kind.split(" x ")[-1].rstrip(">")
        suffix = f"v{LANES}{SUFFIX[scalar]}" if kind.startswith("<") else SUFFIX[kind]
        return self.call(kind, f"llvm.{name}.{suffix}", *((kind, v) for v in values))

    def splat(self, value: str, scalar: str) -> str:
        """Return a vector whose lanes all hold one scalar."""
        kind = vector(scalar)
        one = self.do(f"insertelement {kind} poison, {scalar} {value}, i32 0")
        return self.do(f"shufflevector {kind} {one}, {kind} poison, <{LANES} x i32> zeroinitializer")

    def bits(self, mask: str) -> str:
        """Return a <32 x i1> as an i32, lane 0 in bit 0."""
        return self.do(f"bitcast {vector('i1')} {mask} to i32")

    def field(self, base: str, index: int) -> str:
        """Return the address of the 64-bit word `index` of a table."""
        return self.do(f"getelementptr i64, ptr {base}, i64 {index}")

    def add_to(self, address: str, amount: str) -> None:
        """Add an i64 to a counter in memory."""
        old = self.do(f"load i64, ptr {address}")
        new = self.do(f"add i64 {old}, {amount}")
        self.put(f"store i64 {new}, ptr {address}")


@dataclass
class Machine:
    """Hold compiled code: `address(name)` is the entry of a function; the engine keeps the code alive."""

    engine: Any
    module: Any
    target: Any

    def address(self, name: str) -> int:
        """Return the address of a function."""
        return int(self.engine.get_function_address(name))


@cache
def host_has_avx512() -> bool:
    """Return whether this computer's CPU has vectors of 512 bits that a JIT may use."""
    return bool(llvm.get_host_cpu_features().get("avx512f"))


def _target_machine(opt: int) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=opt)


_LEAN = ("always_inliner", "sroa", "sccp", "simplify_cfg", "sroa", "aggressive_dce")
"""Passes for code that computes.

LLVM's own pipeline at level 1 takes eight times as long, nearly all in InstCombine on
32-lane vectors, and the code it makes of flash_forward is no faster (61.7 against 63.7 ms). NewGVN would make
flash_forward 3 % faster, but ends the process on one kernel in some 500 (an assertion: "Seem to have
processed the same Value a lot")."""


def optimise(text: str, counts_only: bool, level: int = 1) -> tuple[Any, Any]:
    """Parse and optimise a module; return (module, target machine).

    Code that only counts gets LLVM's whole pipeline at level 1, whose loop passes turn counting loops into
    products (6 against 30 ms for flash_forward). Vectorisers are off: lanes are vectors already. level: of
    the code generator; 0 takes a third of the time of 1.
    """
    target = _target_machine(level)
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(target, options)
    passes = builder.getModulePassManager() if counts_only else llvm.create_new_module_pass_manager()
    if not counts_only:
        for name in _LEAN:
            getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    return module, target


def to_object(text: str, counts_only: bool = False, level: int = 1) -> bytes:
    """Compile a module to an object file in memory (what the disk cache keeps)."""
    module, target = optimise(text, counts_only, level)
    return bytes(target.emit_object(module))


def link(obj: bytes) -> Machine:
    """Load an object file; symbols come from llvm.add_symbol and the process."""
    target = _target_machine(1)
    module = llvm.parse_assembly("")
    engine = llvm.create_mcjit_compiler(module, target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(obj))
    engine.finalize_object()
    return Machine(engine, module, target)
