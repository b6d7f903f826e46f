"""A kernel's options as plain descriptions, so that a command line can be made from the dataclass of a
KernelSpec.

A field's annotation is bool, int, float or str, or one of them with None; metadata may hold `help` and
`choices`.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.errors import BadOption, UnknownName
from kernels_sim.problem import KernelSpec


@dataclass(frozen=True)
class Option:
    """Describe one option: its exact name, type (bool, int, float or str), default, choices (none: any
    value), help.
    """

    name: str
    type: type
    default: Any
    choices: tuple[str, ...]
    help: str

    @property
    def flag(self) -> str:
        """Return how the option is written on the command line: --N, --q-start."""
        return "--" + self.name.replace("_", "-")


def options_of(spec: KernelSpec) -> list[Option]:
    """List the options of a kernel in the order of its fields."""
    hints = typing.get_type_hints(spec.options)
    return [
        Option(
            f.name,
            _base_type(hints[f.name]),
            f.default,
            tuple(f.metadata.get("choices", ())),
            f.metadata.get("help", ""),
        )
        for f in dataclasses.fields(spec.options)
    ]


def _base_type(hint: Any) -> type:
    """Return int for `int`, `int | None` and Optional[int]."""
    parts = [t for t in typing.get_args(hint) if t is not type(None)] or [hint]
    if len(parts) != 1 or parts[0] not in (bool, int, float, str):
        raise TypeError(f"an option is bool, int, float or str, or one of them or None; not {hint}")
    return parts[0]


KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool, np.bool_), "true or false"),
    int: ((int, np.integer), "a whole number"),
    float: ((int, float, np.integer, np.floating), "a number"),
    str: ((str,), "a word"),
}
"""Type of an option -> what its values may be, and what they are called."""


def check_values(spec: KernelSpec, values: Mapping[str, Any]) -> None:
    """Raise UnknownName for an option that a kernel does not have, BadOption for a value of another type or
    none of the choices."""
    own = {o.name: o for o in options_of(spec)}
    for name, value in values.items():
        if name not in own:
            raise UnknownName(f"{spec.name} has no option {name}; it has: {', '.join(own)}")
        option = own[name]
        kinds, needed = KINDS[option.type]
        if value is None and option.default is None:
            continue
        if not isinstance(value, kinds) or isinstance(value, bool) and option.type is not bool:
            raise BadOption(f"{spec.name}: option {name} must be {needed}, got {value!r}")
        if option.choices and value not in option.choices:
            raise BadOption(f"{spec.name}: option {name} must be one of {', '.join(option.choices)}, "
                            f"got {value!r}")


def summary(spec: KernelSpec) -> str:
    """Return the options of a kernel and their defaults in one line: --N 4096  --Nk INT  --causal (off)."""
    return "  ".join(f"{o.flag} {_default(o)}" for o in options_of(spec))


def _default(option: Option) -> str:
    if option.type is bool:
        return "(on)" if option.default else "(off)"
    return option.type.__name__.upper() if option.default is None else str(option.default)
