"""Numbers that may lie at any address: loaded and stored byte by byte, as in packed records.

What it models: the machine code of an access whose alignment nobody knows: one access a byte, the parts put
together by shifts. What it leaves out: narrow floats. Which ncu metric checks it: `l1tex__t_requests_*`.
"""

from __future__ import annotations

from dsl.lowering.builder import Builder
from dsl.lowering.values import Arr, Val
from dsl.types import FLOATS, register_type
from dsl.warpir.ir import BYTES, Imm, Ld, Operand, Reg, St


def load(b: Builder, array: Arr, element: str, addr: Operand) -> Val:
    """Load one number, the lowest byte first."""
    size = _size(b, element)
    word = "u64" if size == 8 else "u32"
    total: Operand = Imm(0)
    for k in range(size):
        part: Operand = b.reg("u32")
        assert isinstance(part, Reg)
        b.emit(Ld(array.space, "u8", (part,), beyond(b, addr, k), array.name, b.loc))
        if word == "u64":
            part = b.cvt(part, "u32", "u64")
        shifted = b.alu("shl", word, part, Imm(8 * k)) if k else part
        total = b.alu("or", word, total, shifted) if k else shifted
    return Val(_typed(b, total, word, element), element)


def _typed(b: Builder, bits: Operand, word: str, element: str) -> Operand:
    """Return bits as a number of a type: narrow signed ones with their sign, booleans as a test."""
    if element == "pred":
        return b.setp("ne", word, bits, Imm(0))
    if element in ("s8", "s16"):
        spare = Imm(32 - 8 * BYTES[element])
        return b.alu("shr", "s32", b.alu("shl", "s32", bits, spare), spare)
    kind = register_type(element)
    return bits if kind == word else b.bitcast(bits, word, kind)


def store(b: Builder, array: Arr, element: str, addr: Operand, value: Operand) -> None:
    """Store one number, the lowest byte first."""
    size, kind = _size(b, element), register_type(element)
    word = "u64" if size == 8 else "u32"
    if element == "pred":
        value = b.selp("u32", Imm(1), Imm(0), value)
    elif kind[0] == "f" or (kind != word and isinstance(value, Reg)):
        value = b.bitcast(value, kind, word)
    for k in range(size):
        part = b.alu("shr", word, value, Imm(8 * k)) if k else value
        if word == "u64":
            part = b.cvt(part, "u64", "u32")
        b.emit(St(array.space, "u8", (part,), beyond(b, addr, k), array.name, b.loc))


def _size(b: Builder, element: str) -> int:
    if element in FLOATS and element not in ("f32", "f64"):
        raise b.refuse("a 16-bit or 8-bit float in a packed record", "make the dtype with align=True")
    return BYTES[element]


def beyond(b: Builder, addr: Operand, nbytes: int) -> Operand:
    """Return the address some bytes further on."""
    if isinstance(addr, Imm):
        return Imm(addr.value + nbytes)
    return b.alu("add", "s64", addr, Imm(nbytes)) if nbytes else addr


def copy(b: Builder, source: Arr, at: Operand, target: Arr, to: Operand, count: int) -> None:
    """Copy bytes from one place to another, all loaded before the first is stored."""
    parts = []
    for k in range(count):
        part = b.reg("u32")
        b.emit(Ld(source.space, "u8", (part,), beyond(b, at, k), source.name, b.loc))
        parts.append(part)
    for k, part in enumerate(parts):
        b.emit(St(target.space, "u8", (part,), beyond(b, to, k), target.name, b.loc))
