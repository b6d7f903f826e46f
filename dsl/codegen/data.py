"""Machine code for the data of loads and stores: between memory and the lanes' registers.

What it models: one element or a vector of them a lane, narrow ones widened in registers; where lanes collide
in a store, the highest one's stays. What it leaves out: what is counted (dsl/codegen/memory.py) and atomics
(dsl/codegen/atomics.py). Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl.llvm.text import LANES, SUFFIX, TYPES, lanes_constant, vector
from dsl.warpir import ir

if TYPE_CHECKING:
    from dsl.codegen.kernel import WarpCode

CONSTANTS = "@constants"
"""The kernel's constant arrays, a part of its module."""
WORDS = vector("i64")
FLAGS = vector("i1")


def load(cg: WarpCode, instr: ir.Ld) -> None:
    """Emit a load, element by element but for vectors that lie side by side."""
    if len(instr.dsts) > 1 and cg.full and _side_by_side(cg, instr, ir.access_bytes(instr)):
        _load_interleaved(cg, instr)
    else:
        for k in range(len(instr.dsts)):
            _load_element(cg, instr, k)


def store(cg: WarpCode, instr: ir.St) -> None:
    """Emit a store, element by element but for vectors that lie side by side."""
    if len(instr.values) > 1 and cg.full and _side_by_side(cg, instr, ir.access_bytes(instr)):
        _store_interleaved(cg, instr)
    else:
        for k in range(len(instr.values)):
            _store_element(cg, instr, k)


def base(cg: WarpCode, instr: ir.Access) -> str:
    """Return the host pointer of offset 0 of an access's space; of its array in local memory."""
    spaces = {"global": "%global", "shared": "%shared", "const": CONSTANTS}
    return spaces.get(instr.space) or cg.local_array(instr.array)


def _pointer(cg: WarpCode, instr: ir.Access, k: int) -> str:
    """Return the host pointer of element k of a uniform access, or of the first of lanes side by side.

    An element of a private array is a vector of 32 lanes.
    """
    t, skip = cg.text, k * ir.BYTES[instr.type]
    offset = cg.raw(instr.addr, "s64")
    if instr.space == "local":
        from_start = t.do(f"sub i64 {offset}, {cg.local_start(instr.array) - skip}")
        offset = t.do(f"mul i64 {from_start}, {LANES}")
    elif skip:
        offset = t.do(f"add i64 {offset}, {skip}")
    return t.do(f"getelementptr i8, ptr {base(cg, instr)}, i64 {offset}")


def pointers(cg: WarpCode, instr: ir.Access, k: int = 0) -> str:
    """Return the lanes' host pointers of their element k."""
    t, size = cg.text, ir.BYTES[instr.type]
    offsets = cg.vector(instr.addr, "s64")
    if instr.space == "local":
        start = cg.local_start(instr.array) - k * size
        relative = t.do(f"sub {WORDS} {offsets}, splat (i64 {start})")
        lanes = lanes_constant(tuple(size * i for i in range(LANES)), "i64")
        offsets = t.do(f"add {WORDS} {t.do(f'mul {WORDS} {relative}, splat (i64 {LANES})')}, {lanes}")
    elif k:
        offsets = t.do(f"add {WORDS} {offsets}, splat (i64 {k * size})")
    return t.do(f"getelementptr i8, ptr {base(cg, instr)}, {WORDS} {offsets}")


def _side_by_side(cg: WarpCode, instr: ir.Ld | ir.St, size: int) -> bool:
    """Tell whether what the lanes want lies side by side in host memory, `size` bytes each.

    In local memory that are the elements of one index, whatever the size.
    """
    shape = cg.shapes.of(instr.addr)
    if instr.space == "local":
        return shape.uniform and size == ir.BYTES[instr.type]
    return shape.pattern == tuple(size * lane for lane in range(LANES))


def _load_element(cg: WarpCode, instr: ir.Ld, k: int) -> None:
    t, memory, size = cg.text, memory_type(instr.type), ir.BYTES[instr.type]
    kind, dst = vector(memory), instr.dsts[k]
    if cg.shapes.of(dst).uniform:
        value = t.do(f"load {memory}, ptr {_pointer(cg, instr, k)}, align {size}")
        cg.define(dst, _widened(cg, value, instr.type, dst, False))
        return
    masked = [("i32", str(size)), (FLAGS, cg.mask), (kind, "zeroinitializer")]
    if _side_by_side(cg, instr, size):
        pointer = _pointer(cg, instr, k)
        if cg.full or instr.space == "local":
            value = t.do(f"load {kind}, ptr {pointer}, align {size}")
        else:
            args = [("ptr", pointer), *masked]
            value = t.call(kind, f"llvm.masked.load.v{LANES}{SUFFIX[memory]}.p0", *args)
    else:
        args = [(vector("ptr"), pointers(cg, instr, k)), *masked]
        value = t.call(kind, f"llvm.masked.gather.v{LANES}{SUFFIX[memory]}.v{LANES}p0", *args)
    cg.define(dst, _widened(cg, value, instr.type, dst, True))


def memory_type(element: str) -> str:
    """Return the LLVM type of an element in memory, where a predicate is a byte."""
    return "i8" if element == "pred" else TYPES[element]


def _widened(cg: WarpCode, value: str, element: str, dst: ir.Reg, is_vector: bool) -> str:
    """Return a loaded element in the register's type: small integers extended, a predicate's byte tested."""
    t = cg.text
    form = vector if is_vector else (lambda s: s)
    if element == "pred":
        zero = "zeroinitializer" if is_vector else "0"
        return t.do(f"icmp ne {form('i8')} {value}, {zero}")
    if element in ("u8", "s8", "u16", "s16"):
        extend = "sext" if element[0] == "s" else "zext"
        return t.do(f"{extend} {form(TYPES[element])} {value} to {form('i32')}")
    return cg.reinterpreted(value, element, dst.type, is_vector)


def narrowed(cg: WarpCode, operand: ir.Operand, element: str, is_vector: bool) -> tuple[str, str]:
    """Return (LLVM type, value) of what a store or an atomic writes of an operand."""
    t = cg.text
    form = vector if is_vector else (lambda s: s)
    register = {"u8": "u32", "s8": "s32", "u16": "u32", "s16": "s32"}.get(element, element)
    value = cg.vector(operand, register) if is_vector else cg.raw(operand, register)
    if element == "pred":
        return "i8", t.do(f"zext {form('i1')} {value} to {form('i8')}")
    if register != element:
        return TYPES[element], t.do(f"trunc {form('i32')} {value} to {form(TYPES[element])}")
    return TYPES[element], value


def _store_element(cg: WarpCode, instr: ir.St, k: int) -> None:
    t, size = cg.text, ir.BYTES[instr.type]
    if cg.shapes.of(instr.addr).uniform and instr.space != "local":
        _store_one(cg, instr, k)
        return
    memory, value = narrowed(cg, instr.values[k], instr.type, True)
    kind = vector(memory)
    if not _side_by_side(cg, instr, size):
        args = [(kind, value), (vector("ptr"), pointers(cg, instr, k)), ("i32", str(size)), (FLAGS, cg.mask)]
        t.call("void", f"llvm.masked.scatter.v{LANES}{SUFFIX[memory]}.v{LANES}p0", *args)
        return
    pointer = _pointer(cg, instr, k)
    if cg.full:
        t.put(f"store {kind} {value}, ptr {pointer}, align {size}")
    elif instr.space == "local":
        old = t.do(f"load {kind}, ptr {pointer}, align {size}")
        merged = t.do(f"select {FLAGS} {cg.mask}, {kind} {value}, {kind} {old}")
        t.put(f"store {kind} {merged}, ptr {pointer}, align {size}")
    else:
        args = [(kind, value), ("ptr", pointer), ("i32", str(size)), (FLAGS, cg.mask)]
        t.call("void", f"llvm.masked.store.v{LANES}{SUFFIX[memory]}.p0", *args)


def _store_one(cg: WarpCode, instr: ir.St, k: int) -> None:
    """Store to one address from all lanes: the highest active lane's value stays."""
    t, operand = cg.text, instr.values[k]
    pointer = _pointer(cg, instr, k)
    varying = not cg.shapes.of(operand).uniform
    memory, value = narrowed(cg, operand, instr.type, varying)
    if varying:
        value = t.do(f"extractelement {vector(memory)} {value}, i32 {_highest_lane(cg)}")
    t.put(f"store {memory} {value}, ptr {pointer}, align {ir.BYTES[instr.type]}")


def _highest_lane(cg: WarpCode) -> str:
    if cg.full:
        return str(LANES - 1)
    t = cg.text
    zeros = t.call("i32", "llvm.ctlz.i32", ("i32", cg.bits), ("i1", "true"))
    return t.do(f"sub i32 31, {zeros}")


# ------------------------------------------------------------------------------------------ vectors


def _load_interleaved(cg: WarpCode, instr: ir.Ld) -> None:
    """Load the vectors of a full warp at once; element k of each lane is every n-th from the k-th on."""
    t, memory, n = cg.text, memory_type(instr.type), len(instr.dsts)
    whole = f"<{n * LANES} x {memory}>"
    size = ir.BYTES[instr.type]
    found = t.do(f"load {whole}, ptr {_pointer(cg, instr, 0)}, align {size}")
    for k, dst in enumerate(instr.dsts):
        places = lanes_constant(tuple(n * lane + k for lane in range(LANES)), "i32")
        value = t.do(f"shufflevector {whole} {found}, {whole} poison, {vector('i32')} {places}")
        cg.define(dst, _widened(cg, value, instr.type, dst, True))


def _store_interleaved(cg: WarpCode, instr: ir.St) -> None:
    """Store the vectors of a full warp at once."""
    t, n = cg.text, len(instr.values)
    parts = [narrowed(cg, v, instr.type, True) for v in instr.values]
    memory, columns, width = parts[0][0], [value for _, value in parts], LANES
    while len(columns) > 1:  # side by side, two by two
        kind, width = f"<{width} x {memory}>", 2 * width
        places = lanes_constant(tuple(range(width)), "i32")
        pairs = zip(columns[::2], columns[1::2], strict=True)
        columns = [
            t.do(f"shufflevector {kind} {a}, {kind} {b}, <{width} x i32> {places}") for a, b in pairs
        ]
    whole = f"<{width} x {memory}>"
    order = lanes_constant(tuple(k * LANES + lane for lane in range(LANES) for k in range(n)), "i32")
    mixed = t.do(f"shufflevector {whole} {columns[0]}, {whole} poison, <{width} x i32> {order}")
    t.put(f"store {whole} {mixed}, ptr {_pointer(cg, instr, 0)}, align {ir.BYTES[instr.type]}")
