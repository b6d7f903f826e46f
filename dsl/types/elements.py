"""What the elements of an array are: plain numbers, vectors such as float32x4, or records.

What it models: numba.cuda's vector types with CUDA's alignments, and how many accesses the card needs for
one: at most 16 bytes each; a vector of 3 is three accesses, aligned as its number is. What it leaves out:
arithmetic of vectors, which numba.cuda does not have either. Which ncu metric checks it: requests and
sectors a request, `l1tex__t_*_mem_global_op_*`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsl.warpir.ir import BYTES

AXES = "xyzw"
ACCESS_BYTES = 16
"""What one access can move in a lane."""
NUMBERS = {
    "int8": "s8", "int16": "s16", "int32": "s32", "int64": "s64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float32": "f32", "float64": "f64",
}  # fmt: skip
"""The numbers that vectors are made of, by numba's names."""
ALIASES = {
    "char": "int8", "short": "int16", "int": "int32", "long": "int64", "longlong": "int64",
    "uchar": "uint8", "ushort": "uint16", "uint": "uint32", "ulong": "uint64", "ulonglong": "uint64",
    "float": "float32", "double": "float64",
}  # fmt: skip
"""The C names that numba gives them too (on Linux, where a long has 64 bits)."""


@dataclass(frozen=True)
class VectorType:
    """Describe a vector of one to four numbers x, y, z, w; `element` is the type of each."""

    name: str
    element: str
    count: int

    @property
    def fields(self) -> str:
        """Return the letters of its members."""
        return AXES[: self.count]

    @property
    def bytes(self) -> int:
        """Return its size; there is nothing between the members or behind the last."""
        return self.count * BYTES[self.element]

    @property
    def alignment(self) -> int:
        """Return what its address is a multiple of: its size up to 16 bytes, of a 3-vector its number's."""
        return BYTES[self.element] if self.count == 3 else min(self.bytes, ACCESS_BYTES)

    @property
    def numbers_an_access(self) -> int:
        """Return how many members one access moves; a vector of more takes several, one after another."""
        return self.alignment // BYTES[self.element]


_BY_NUMBER = {
    f"{name}x{count}": VectorType(f"{name}x{count}", element, count)
    for name, element in NUMBERS.items()
    for count in range(1, 5)
}
VECTORS = {
    **_BY_NUMBER,
    **{f"{c_name}{k}": _BY_NUMBER[f"{name}x{k}"] for c_name, name in ALIASES.items() for k in range(1, 5)},
}
"""Every vector type by its names: `float32x4` and `float4`."""
@dataclass(frozen=True)
class Field:
    """Describe a field of a record: its element type, None where the language has none for what it `holds`.

    shape: of the array that the field is, () for one element. offset: bytes from the record's start.
    """

    name: str
    element: Element | None
    shape: tuple[int, ...]
    offset: int
    holds: str


@dataclass(frozen=True)
class RecordType:
    """Describe a record: its fields and size; `aligned` says that numpy made it with align=True."""

    fields: tuple[Field, ...]
    bytes: int
    alignment: int
    aligned: bool

    @property
    def name(self) -> str:
        """Return what a message calls it."""
        return f"records of {', '.join(f.name for f in self.fields)}"


Element = str | VectorType | RecordType
"""An element type of `ir.BYTES`, a vector, or a record."""


def bytes_of(element: Element) -> int:
    """Return the bytes from one element of an array to the next."""
    return BYTES[element] if isinstance(element, str) else element.bytes


def alignment_of(element: Element) -> int:
    """Return what the address of an element is a multiple of."""
    return BYTES[element] if isinstance(element, str) else element.alignment


def number_of(element: Element) -> str:
    """Return the type of the numbers that an element is made of, u8 for a record's bytes."""
    if isinstance(element, RecordType):
        return "u8"
    return element if isinstance(element, str) else element.element
