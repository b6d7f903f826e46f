"""Metal sources: with their headers and constants in place, their kernels, and as C++ for the shim.

C++ has no address spaces. `device T*` becomes a class that counts; an array in `threadgroup` memory is shared
by the fibres of a threadgroup and becomes static, known to the shim by its address, while a `threadgroup`
pointer is a plain one; `constant` becomes const. Macros could not tell the two meanings of `threadgroup`
apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gpusim.errors import UnsupportedFeature

FOLDER = Path(__file__).parent
INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)
KERNEL = re.compile(r"\bkernel\s+void\s+(\w+)\s*\(([^{]*)\)\s*\{")
PARAMETER = re.compile(r"(.+?)\s*(\w+)\s*\[\[\s*(\w+)(?:\((\d+)\))?\s*\]\]", re.DOTALL)
DEVICE_POINTER = re.compile(r"\bdevice\s+((?:const\s+)?\w+)\s*\*")
REWRITTEN = (
    (re.compile(r"\s*\[\[.*?\]\]", re.DOTALL), ""),
    (DEVICE_POINTER, r"metal_shim::device_pointer<\1>"),
    (re.compile(r"\bthreadgroup\s+((?:const\s+)?\w+\s*\*)"), r"\1"),
    (re.compile(r"\bthreadgroup\s+(\w+\s+(\w+)\s*\[[^;]*;)"),
     r"static \1 static metal_shim::ThreadgroupMemory memory_of_\2(&\2, sizeof \2);"),
    (re.compile(r"\bconstant\b"), "const"),
    (re.compile(r"\bkernel\s+void\b"), "static void"),
)
BUILT_IN = {
    "threadgroup_position_in_grid": "metal_shim::launch.group",
    "threads_per_threadgroup": "metal_shim::launch.block",
    "thread_index_in_threadgroup": "metal_shim::launch.thread",
    "thread_position_in_threadgroup": "metal_shim::thread_position()",
}
"""Attribute of a kernel's parameter -> what the shim passes."""


@dataclass(frozen=True)
class Parameter:
    """Describe a kernel's parameter: its type as written, and a buffer's number or a built-in's attribute."""

    name: str
    type: str
    attribute: str
    buffer: int | None

    @property
    def is_constant(self) -> bool:
        """Return whether it lies in the constant address space."""
        return self.type.startswith("constant")


@dataclass(frozen=True)
class Kernel:
    """Describe a kernel: its name and its parameters in order."""

    name: str
    parameters: tuple[Parameter, ...]

    @property
    def buffers(self) -> tuple[Parameter, ...]:
        """Return the parameters that are buffers, by their numbers."""
        bound = {p.buffer: p for p in self.parameters if p.buffer is not None}
        return tuple(bound[number] for number in sorted(bound))


def metal(file: Path, constants: dict[str, int]) -> str:
    """Return a Metal source that stands alone: constants as macros before it, headers of its folder in it."""
    macros = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    text = file.read_text()

    def header(match: re.Match[str]) -> str:
        body = (file.parent / match[1]).read_text().replace("#pragma once", "")
        line = text[: match.start()].count("\n") + 2
        return f'#line 1 "{match[1]}"\n{body}\n#line {line} "{file.name}"'

    return f'{macros}#line 1 "{file.name}"\n{INCLUDE.sub(header, text)}'


def kernels(text: str) -> dict[str, Kernel]:
    """Return the kernels of a Metal source by name."""
    found = KERNEL.findall(text)
    return {name: Kernel(name, tuple(map(_parameter, listed.split(",")))) for name, listed in found}


def _parameter(text: str) -> Parameter:
    """Read `constant Params& p [[buffer(3)]]`; raise UnsupportedFeature for an attribute not known."""
    match = PARAMETER.search(text)
    if not match or (match[3] != "buffer" and match[3] not in BUILT_IN):
        raise UnsupportedFeature(f"the shim does not bind the parameter {' '.join(text.split())!r}; it binds "
                                 f"[[buffer(n)]] and {', '.join(f'[[{name}]]' for name in BUILT_IN)}")
    buffer = int(match[4]) if match[3] == "buffer" else None
    return Parameter(match[2], " ".join(match[1].split()), match[3], buffer)


def cpp(text: str) -> str:
    """Return a Metal source as C++, with a function `run_NAME` for the host behind each kernel."""
    found = kernels(text)
    for pattern, replacement in REWRITTEN:
        text = pattern.sub(replacement, text)
    return text + "\nstatic metal_shim::Buffer* bound;\n" + "".join(map(_entry, found.values()))


def _entry(kernel: Kernel) -> str:
    """Return the functions that bind a kernel's buffers and run it over a grid."""
    arguments = ",\n        ".join(map(_argument, kernel.parameters))
    return f"""
static void body_{kernel.name}() {{
    {kernel.name}(
        {arguments});
}}

extern "C" int run_{kernel.name}(metal_shim::Buffer* buffers, const unsigned* grid, const unsigned* block,
        char* stacks, int backwards, char* message, int64_t message_bytes) {{
    bound = buffers;
    return metal_shim::run(body_{kernel.name}, {{grid[0], grid[1], grid[2]}},
                           {{block[0], block[1], block[2]}}, stacks, backwards, message, message_bytes);
}}
"""


def _argument(parameter: Parameter) -> str:
    """Return the expression that a kernel gets for a parameter."""
    if parameter.buffer is None:
        return BUILT_IN[parameter.attribute]
    bound = f"bound[{parameter.buffer}]"
    pointer = DEVICE_POINTER.fullmatch(parameter.type)
    if pointer:
        return f"metal_shim::device_pointer<{pointer[1]}>({bound})"
    return f"*static_cast<const {parameter.type.removeprefix('constant').strip(' &')}*>({bound}.data)"
