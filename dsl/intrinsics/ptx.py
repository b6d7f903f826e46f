"""What a call of each name of `ptx` emits: tensor cores; memory is in dsl/intrinsics/ptx_memory.py.

What it models: the operands of the PTX instructions, packed registers as PTX packs them: an integer of any
width may be a register of packed values, and its low 32 bits count. What it leaves out: wgmma, TMA, mbarrier,
integer and sparse mma. Which ncu metric checks it: `sm__inst_executed_pipe_tensor_op_hmma`.
"""

from __future__ import annotations

import ast

from dsl.intrinsics import ptx_conversions, ptx_memory
from dsl.intrinsics.arguments import Body, Emitter, integer, kind, takes
from dsl.lowering.frame import Frame
from dsl.lowering.operations import convert
from dsl.lowering.values import Tup, Val, Value, describe
from dsl.types import FLOATS
from dsl.warpir.ir import Mma, Need, Operand

MMA_TYPES = {
    "m16n8k16_f32_f16": ("f16", "f16"),
    "m16n8k16_f32_bf16": ("bf16", "bf16"),
    "m16n8k8_f32_tf32": ("tf32", "tf32"),
    "m16n8k32_f32_e4m3": ("e4m3", "e4m3"),
    "m16n8k32_f32_e5m2": ("e5m2", "e5m2"),
    "m16n8k32_f32_e4m3_e5m2": ("e4m3", "e5m2"),
    "m16n8k32_f32_e5m2_e4m3": ("e5m2", "e4m3"),
}
"""Shape and types of an mma as its name says them -> types of A and B."""


PACKED_VALUES, ACCUMULATORS = "integers of packed values (uint32)", "float32"
FP8_CAPABILITY = (8, 9)
"""Compute capability from which on PTX has mma and packed cvt of e4m3 and e5m2 (PTX ISA, mma and cvt)."""


def capability_of(path: str) -> tuple[int, int] | None:
    """Return the compute capability that an instruction of `ptx` needs, None where each simulated GPU has it.
    """
    return FP8_CAPABILITY if "e4m3" in path or "e5m2" in path else None


def wrong_fragment(path: str, name: str, given: str, count: int, of: str) -> tuple[str, str]:
    """Say what was given in the place of a fragment, and what to give."""
    return f"the {name} of {path} is {given}", f"give a tuple of {count} {of}"


def _items(frame: Frame, path: str, name: str, value: Value, count: int, of: str) -> tuple[Value, ...]:
    """Return the registers of a fragment; raises KernelMistake for anything but a tuple of `count`."""
    if not isinstance(value, Tup) or len(value.items) != count:
        raise frame.builder.mistake(*wrong_fragment(path, name, describe(value), count, of))
    return value.items


_PACKERS = {
    "f16": "ptx.cvt_rn_f16x2_f32(high, low)", "bf16": "ptx.cvt_rn_bf16x2_f32(high, low)",
    "tf32": "ptx.cvt_rna_tf32_f32(x)", "e4m3": "ptx.cvt_rn_satfinite_e4m3x2_f32(high, low)",
    "e5m2": "ptx.cvt_rn_satfinite_e5m2x2_f32(high, low)",
}  # fmt: skip
"""What makes packed bits of numbers, for each type of an operand."""


def numbers_for_bits(path: str, name: str, given: str, type_: str) -> tuple[str, str]:
    """Say that an operand of an mma holds numbers of a type instead of their bits, and what makes those."""
    what = f"the {name} of {path} holds {given}, not the bits of {type_} in an integer"
    return what, f"make them by {_PACKERS[type_]}"


def _packed(
    frame: Frame, path: str, name: str, value: Value, count: int, type_: str
) -> tuple[Operand, ...]:
    """Return the registers of packed values (u32)."""
    items = _items(frame, path, name, value, count, PACKED_VALUES)
    for v in items:
        if isinstance(v, Val) and v.type in FLOATS:
            raise frame.builder.mistake(*numbers_for_bits(path, name, kind(v), type_))
    return tuple(convert(frame.builder, integer(frame, path, name, v), "u32").operand for v in items)


def _accumulators(frame: Frame, path: str, name: str, value: Value) -> tuple[Operand, ...]:
    """Return the four accumulators (f32)."""
    items = _items(frame, path, name, value, 4, ACCUMULATORS)
    for v in items:
        if not isinstance(v, Val) or v.type != "f32":
            raise frame.builder.mistake(
                f"the {name} of {path} holds {kind(v)}", "give four float32, e.g. float32(0)"
            )
    return tuple(v.operand for v in items if isinstance(v, Val))


def _mma(path: str, a_type: str, b_type: str) -> Body:
    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        b = frame.builder
        left = _packed(frame, path, "a", given["a"], 4, a_type)
        right = _packed(frame, path, "b", given["b"], 2, b_type)
        dsts = tuple(b.reg("f32") for _ in range(4))
        b.emit(Mma(a_type, b_type, dsts, left, right, _accumulators(frame, path, "c", given["c"]), b.loc))
        return Tup(tuple(Val(dst, "f32") for dst in dsts))

    return body


def _plain(name: str, names: tuple[str, ...], body: Body, required: int | None = None) -> dict[str, Emitter]:
    return {f"ptx.{name}": takes(f"ptx.{name}", names, body, required)}


def _needing(path: str, emit: Emitter) -> Emitter:
    """Return an emitter that also notes which compute capability its instruction needs."""

    def noting(
        frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: dict[str, Value], used: bool
    ) -> Value | None:
        frame.unit.needs.append(Need(path, capability_of(path) or (0, 0), frame.builder.loc))
        return emit(frame, node, args, keywords, used)

    return noting


CALLS: dict[str, Emitter] = {**ptx_conversions.CALLS, **ptx_memory.CALLS}
for _name, _types in MMA_TYPES.items():
    CALLS |= _plain(f"mma_sync_{_name}", ("a", "b", "c"), _mma(f"ptx.mma_sync_{_name}", *_types))
CALLS |= {path: _needing(path, emit) for path, emit in CALLS.items() if capability_of(path)}
