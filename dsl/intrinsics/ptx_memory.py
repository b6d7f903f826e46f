"""What a call of ptx.ldmatrix_* and ptx.cp_async_* emits.

What it models: the operands of the PTX instructions, an array and an index in the place of an address: the
index names the first element of what is moved, and all of it has to lie in the array, in its last dimension
where that does not fill rows of 16 bytes. What it leaves out: alignment, which is checked when it runs. Which
ncu metric checks it: `smsp__inst_executed_op_ldsm`, `smsp__inst_executed_op_ldgsts`.
"""

from __future__ import annotations

from dsl.intrinsics.arguments import Body, Emitter, integer, takes
from dsl.lowering import arrays
from dsl.lowering.frame import Frame
from dsl.lowering.operations import convert
from dsl.lowering.values import Arr, Static, Tup, Val, Value, describe
from dsl.warpir.ir import BYTES, Chk, CpAsync, CpCommit, CpWait, Imm, LdMatrix, Operand

ROW_BYTES = 16
COPY_BYTES = {"ca": (4, 8, 16), "cg": (16,)}
"""Bytes a lane that each kind of cp.async can copy."""


def _array(frame: Frame, path: str, name: str, value: Value, space: str) -> tuple[Arr, str]:
    """Return an array argument and its element type; raises KernelMistake for anything else."""
    if not isinstance(value, Arr) or value.space != space:
        what = f"the {value.space} array {value.name!r}" if isinstance(value, Arr) else describe(value)
        raise frame.builder.mistake(f"the {name} of {path} is {what}", f"give an array in {space} memory")
    return value, arrays.plain(frame.builder, value, path)


def _require_rows(frame: Frame, path: str, array: Arr, element: str) -> None:
    """Refuse a shared array that rows of 16 bytes do not fill."""
    nbytes = BYTES[element]
    for extent in array.shape:
        nbytes *= extent if isinstance(extent, int) else ROW_BYTES
    if nbytes % ROW_BYTES or (array.offset or 0) % ROW_BYTES:
        raise frame.builder.mistake(
            f"{path} of {array.name!r}, which does not begin or end at a multiple of {ROW_BYTES} bytes",
            f"make it with alignment={ROW_BYTES}, and of whole rows of {ROW_BYTES} bytes",
        )


def _run_address(frame: Frame, array: Arr, index: Value, last: Operand | int) -> Operand:
    """Return the address of elements side by side; `last` more of them have to lie in the last dimension."""
    b = frame.builder
    places = arrays.positions(b, array, index)
    if last != 0:
        dim, end = len(places) - 1, Imm(last) if isinstance(last, int) else last
        beyond = b.alu("add", "s64", places[-1], end)
        b.emit(Chk(b.reg("s64"), beyond, arrays.extent(b, array, dim).operand, array.name, dim, b.loc))
    return arrays.address_at(b, array, places)


def _ldmatrix(path: str, matrices: int, trans: bool) -> Body:
    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        b = frame.builder
        array, element = _array(frame, path, "array", given["array"], "shared")
        _require_rows(frame, path, array, element)
        dynamic = not all(isinstance(extent, int) for extent in array.shape)
        last = ROW_BYTES // BYTES[element] - 1 if dynamic else 0
        addr = _run_address(frame, array, given["index"], last)
        dsts = tuple(b.reg("u32") for _ in range(matrices))
        b.emit(LdMatrix(dsts, addr, array.name, b.loc, trans))
        found = tuple(Val(dst, "u32") for dst in dsts)
        return found[0] if matrices == 1 else Tup(found)

    return body


def _nbytes(frame: Frame, path: str, value: Value, cache: str, element: str) -> int:
    n = value.constant if isinstance(value, Val) else None
    allowed = COPY_BYTES[cache]
    if n not in allowed or int(n) % BYTES[element]:
        sizes = ", ".join(map(str, allowed))
        raise frame.builder.mistake(
            f"the nbytes of {path}", f"give a constant, {sizes}, that holds whole elements"
        )
    return int(n)


def _require_side_by_side(frame: Frame, path: str, array: Arr, element: str) -> None:
    if array.strides[-1] != BYTES[element]:
        raise frame.builder.mistake(
            f"{path} from {array.name!r}, whose last dimension is not known to be contiguous",
            "pass a C-contiguous array: np.ascontiguousarray makes one of a view",
        )


def _elements_beyond(frame: Frame, taken: Operand, element: str) -> Operand:
    """Return how many elements behind the first `taken` bytes touch: at least 0."""
    b, size = frame.builder, BYTES[element]
    up = b.alu("add", "s64", taken, Imm(size - 1)) if size > 1 else taken
    count = b.alu("shr", "s64", up, Imm(size.bit_length() - 1)) if size > 1 else up
    return b.alu("add", "s64", b.alu("max", "s64", count, Imm(1)), Imm(-1))


def _copy(path: str, cache: str) -> Body:
    def body(frame: Frame, given: dict[str, Value], used: bool) -> None:
        b = frame.builder
        target, element = _array(frame, path, "dst", given["dst"], "shared")
        source, same = _array(frame, path, "src", given["src"], "global")
        if element != same:
            raise b.mistake(f"{path} from {source.name!r} to {target.name!r}", "give arrays of one type")
        nbytes = _nbytes(frame, path, given["nbytes"], cache, element)
        _require_side_by_side(frame, path, source, element)
        whole = nbytes // BYTES[element] - 1
        taken: Operand | None = None
        given_bytes = given.get("src_bytes", Static(None))
        if given_bytes != Static(None):
            taken = convert(b, integer(frame, path, "src_bytes", given_bytes), "s64").operand
        to = _run_address(frame, target, given["dst_index"], whole)
        beyond = whole if taken is None else _elements_beyond(frame, taken, element)
        addr = _run_address(frame, source, given["src_index"], beyond)
        b.emit(CpAsync(to, target.name, addr, source.name, nbytes, cache, b.loc, taken))

    return body


def _commit(frame: Frame, given: dict[str, Value], used: bool) -> None:
    frame.builder.emit(CpCommit(frame.builder.loc))


def _wait_group(frame: Frame, given: dict[str, Value], used: bool) -> None:
    value = given["n"]
    n = value.constant if isinstance(value, Val) else None
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        known = n if isinstance(n, int) else "not known when the kernel is compiled"
        raise frame.builder.mistake(
            f"the n of ptx.cp_async_wait_group is {known}",
            "give the number of newest groups that may still be on their way: 0, 1, 2 ...",
        )
    frame.builder.emit(CpWait(n, frame.builder.loc))


def _wait_all(frame: Frame, given: dict[str, Value], used: bool) -> None:
    _commit(frame, given, used)
    frame.builder.emit(CpWait(0, frame.builder.loc))


LDMATRIX = {
    f"ldmatrix_x{n}{'_trans' if trans else ''}": (n, trans) for n in (1, 2, 4) for trans in (False, True)
}
"""Name -> matrices and whether they are transposed."""
_COPY_NAMES = ("dst", "dst_index", "src", "src_index", "nbytes", "src_bytes")
CALLS: dict[str, Emitter] = {
    f"ptx.{name}": takes(f"ptx.{name}", ("array", "index"), _ldmatrix(f"ptx.{name}", *kind))
    for name, kind in LDMATRIX.items()
}
for _cache in COPY_BYTES:
    _path = f"ptx.cp_async_{_cache}"
    CALLS[_path] = takes(_path, _COPY_NAMES, _copy(_path, _cache), required=5)
CALLS["ptx.cp_async_commit_group"] = takes("ptx.cp_async_commit_group", (), _commit)
CALLS["ptx.cp_async_wait_group"] = takes("ptx.cp_async_wait_group", ("n",), _wait_group)
CALLS["ptx.cp_async_wait_all"] = takes("ptx.cp_async_wait_all", (), _wait_all)
"""What a kernel may call, by its name."""
