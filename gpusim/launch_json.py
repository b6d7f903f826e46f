"""JSON of launches, written and read back, so that `compare` can put two of them side by side later.

One object: {"format": "gpusim-launches", "version": 1, "launches": [...]}. A launch holds its shape, the GPU
with all its values and their fingerprint, the counters, and every metric with value, unit and kind. Reading
rebuilds Launch values; metrics are then computed again from the counters, so the "metrics" part is for other
readers. Counters that the engine of a launch did not count are null. Counters of source lines are by path
("global_load.bytes"), those that are not 0. "as_compiled" holds the shared accesses as machine instructions,
or null. NaN and infinities are the strings "nan", "inf", "-inf": JSON has
no such numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from gpusim.arch import ARCHES, H200, Arch, fingerprint_of
from gpusim.counters import AsCompiled, Counters, Issued
from gpusim.errors import BadOption
from gpusim.launch import (
    NOT_COUNTED,
    Check,
    Fact,
    Launch,
    LineAccess,
    Registers,
    counted_paths,
)
from gpusim.metric import evaluate
from gpusim.metrics import METRICS, kind
from gpusim.occupancy import Occupancy, occupancy
from gpusim.timing import Timing
from gpusim.work import BlockLengths, Stretch, Work

FORMAT, VERSION = "gpusim-launches", 1
PLAIN = (
    "kernel", "static_shared_bytes", "dynamic_shared_bytes", "l2", "engine", "counts_only", "quantum_records")
"""Fields of Launch that JSON holds as they are."""


def dump(launches: Sequence[Launch]) -> str:
    """Return launches as JSON text, with a newline at its end."""
    whole = {"format": FORMAT, "version": VERSION, "launches": [to_dict(launch) for launch in launches]}
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def to_dict(launch: Launch) -> dict[str, Any]:
    """Return one launch as dictionaries, lists, strings and numbers."""
    made: dict[str, Any] = {name: getattr(launch, name) for name in PLAIN}
    made |= {
        "grid": list(launch.grid),
        "block": list(launch.block),
        "arch": {"fingerprint": launch.arch.fingerprint(), **launch.arch.values()},
        "registers": asdict(launch.registers) | ({} if launch.registers.is_known else {"per_thread": None}),
        "shared_buffers": [list(buffer) for buffer in launch.shared_buffers],
        "occupancy": asdict(launch.occupancy) if launch.registers.is_known else None,
        "uncounted": list(launch.uncounted),
        "counters": asdict(launch.counters) | dict.fromkeys(launch.not_counted),
        "closed_form": dict(launch.closed_form),
        "checks": [asdict(check) for check in launch.checks],
        "notes": list(launch.notes),
        "options": launch.options,
        "facts": [asdict(fact) for fact in launch.facts],
        "lines": _lines(launch),
        "accesses": [asdict(access) for access in launch.accesses],
        "as_compiled": asdict(launch.as_compiled) if launch.as_compiled else None,
        "work": _work_parts(launch.work) if launch.work else None,
        "metrics": _metrics(launch),
    }
    return {key: _plain(value) for key, value in made.items()}


def _work_parts(work: Work) -> dict[str, Any]:
    """Return what the time estimate needs."""
    return {
        "stretches": [{"issued": s.issued, "chain": s.chain} for s in work.stretches],
        "lengths": asdict(work.lengths), "lines": work.lines, "hot_line_sectors": work.hot_line_sectors,
    }  # fmt: skip


def _lines(launch: Launch) -> list[dict[str, Any]]:
    """Return the counters of each source line, in order of file and line."""
    return [
        {"file": file, "line": line, "counters": {p: n for p, n in counted_paths(counters).items() if n}}
        for (file, line), counters in sorted(launch.lines.items(), key=lambda item: item[0])
    ]


def _metrics(launch: Launch) -> dict[str, Any]:
    return {
        m.name: {"value": evaluate(m, launch), "unit": m.unit, "kind": kind(launch, m)}
        for m in METRICS
    }


def _plain(value: Any) -> Any:
    """Return what JSON can hold: numpy scalars become numbers, tuples lists, infinities and NaN strings,
    the rest its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def load(text: str, name: str = "the text") -> list[Launch]:
    """Return the launches of a JSON text; raise BadOption, with `name`, where it is not ours, of another
    version, or damaged."""
    try:
        whole = json.loads(text)
    except ValueError as error:
        raise BadOption(
            f"{name} is not JSON: {error}. Make it with `simulate ... --format json --out FILE`.") from None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise BadOption(
            f"{name} is JSON, but not of this simulator. Make it with `simulate ... --format json --out "
            "FILE`.")
    if whole.get("version") != VERSION:
        raise BadOption(
            f"{name} has version {whole.get('version')!r} of the format; this program reads {VERSION}. Make "
            "it again.")
    try:
        return [from_dict(item) for item in whole["launches"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadOption(f"{name} is damaged: {type(error).__name__}: {error}. Make it again.") from None


def from_dict(item: dict[str, Any]) -> Launch:
    """Return the launch that `to_dict` described; raise KeyError, TypeError or ValueError where something
    is missing or wrong."""
    uncounted = tuple(item.get("uncounted", ()))
    return Launch(
        **{name: item[name] for name in PLAIN}, grid=_triple(item["grid"]), block=_triple(item["block"]),
        arch=_arch(item["arch"]), registers=_registers(item["registers"]),
        shared_buffers=tuple((str(name), int(size)) for name, size in item["shared_buffers"]),
        occupancy=_occupancy(item), uncounted=uncounted,
        counters=_counters(item["counters"], (*NOT_COUNTED.get(item["engine"], ()), *uncounted)),
        closed_form={str(path): int(expected) for path, expected in item["closed_form"].items()},
        checks=tuple(Check(c["output"], float(c["error"]), float(c["tolerance"]), float(c.get("terms", 0)),
                           int(c.get("rounded", 0))) for c in item["checks"]),
        notes=tuple(item["notes"]), options=dict(item["options"]),
        facts=tuple(Fact(**fact) for fact in item.get("facts", ())),  # a launch may have none to tell
        lines={(str(n["file"]), int(n["line"])): _sparse(n["counters"]) for n in item.get("lines", ())},
        accesses=tuple(LineAccess(**access) for access in item.get("accesses", ())),
        as_compiled=_as_compiled(item.get("as_compiled")), work=_work(item.get("work")))


def _triple(extents: list[int]) -> tuple[int, int, int]:
    x, y, z = extents
    return int(x), int(y), int(z)


def _arch(item: dict[str, Any]) -> Arch:
    """Return the Arch as it was then; its sources are today's where the GPU is still known."""
    values: dict[str, Any] = {key: _as_tuple(value) for key, value in item.items()}
    fingerprint = values.pop("fingerprint")
    if fingerprint_of(values) != fingerprint:  # of the fields that the file has: an older one lacks some
        raise ValueError(f"the values of GPU {values['name']} do not have the fingerprint {fingerprint}")
    known = ARCHES.get(str(values["name"]), H200)
    values["timing"] = _timing(values.get("timing"), known.timing)
    return Arch(**values, sources=known.sources if known.name == values["name"] else {})


def _timing(item: dict[str, float] | None, known: Timing) -> Timing:
    """Return the times of a GPU as they were then, today's where an older file has none."""
    return known if item is None else Timing(**item, sources=known.sources)


def _as_tuple(value: Any) -> Any:
    """Return lists, and lists in them, as tuples."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _registers(item: dict[str, Any]) -> Registers:
    return Registers(**item | {"per_thread": item["per_thread"] or 0})


def _occupancy(item: dict[str, Any]) -> Occupancy:
    """Return the occupancy of a launch; where its registers are not known, that of the fewest."""
    held = item["occupancy"]
    if held is None:
        arch, threads = _arch(item["arch"]), math.prod(item["block"])
        shared = item["static_shared_bytes"], item["dynamic_shared_bytes"]
        return occupancy(arch, threads, arch.min_registers, *shared)
    return Occupancy(**{**held, "limiters": tuple(held["limiters"])})


def _counters(item: dict[str, Any], not_counted: Sequence[str]) -> Counters:
    """Return the counters; every field must be there, as one that is missing is not 0.

    Only the parts `not_counted` may be null.
    """
    made = Counters.zero()
    for f in fields(Counters):
        part: Any = getattr(made, f.name)
        given = item[f.name]
        if given is None and f.name in not_counted:
            continue
        if isinstance(part, int):
            setattr(made, f.name, int(given))
        else:
            setattr(made, f.name, type(part)(**{g.name: int(given[g.name]) for g in fields(part)}))
    return made


def _as_compiled(item: dict[str, Any] | None) -> AsCompiled | None:
    """Return what a compiler makes of the shared accesses; None where the engine did not tell."""
    return AsCompiled(**{name: Issued(**counts) for name, counts in item.items()}) if item else None


def _work(item: dict[str, Any] | None) -> Work | None:
    """Return what the time estimate needs; None where the engine did not tell, and in older files."""
    if item is None:
        return None
    made = tuple(Stretch(s["issued"], s["chain"]) for s in item["stretches"])
    return Work(made, BlockLengths(**item["lengths"]), int(item["lines"]), int(item["hot_line_sectors"]))


def _sparse(item: dict[str, Any]) -> Counters:
    """Return the counters that paths name, the others 0; raise KeyError for a path that is none."""
    made = Counters.zero()
    known = counted_paths(made)
    for path, n in item.items():
        if path not in known:
            raise KeyError(path)
        part, _, name = path.rpartition(".")
        setattr(getattr(made, part) if part else made, name, int(n))
    return made
