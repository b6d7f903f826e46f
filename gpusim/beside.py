"""Simulated and measured launches beside one another: one row a metric, with tolerance, verdict and cause.

Three classes: exact (arithmetic decides), modelled (a policy of the hardware or of a compiler decides) and
not comparable. Unlike units are never divided, and cold caches are not held against warm ones. What it leaves
out: metrics that the simulator has no name for (they are counted in a note), how far a number may lie off
(gpusim/tolerances.py), rules for causes (gpusim/causes.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpusim import metrics
from gpusim.causes import cause
from gpusim.errors import BadOption
from gpusim.launch import Launch
from gpusim.measured import Measured
from gpusim.metric import Metric, Value, ratio
from gpusim.partners import pairing_notes, partners
from gpusim.report import header
from gpusim.table import Cell, Table, counted, paragraph, render
from gpusim.tolerances import Tolerance, tolerance

NOT_COMPARABLE = "not comparable"
EQUAL, WITHIN, DIFFERS = "equal", "within", "DIFFERS"
UNITS = "unit mismatch"
NO_TENSOR = "multiplied outside of tensor cores"
TENSOR_FLOPS = "gpusim__tensor_flops.sum"
OTHER_CODE = "other machine code"
TWIN = (
    "launch__grid_size", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
    TENSOR_FLOPS)
"""What a kernel of other machine code, on the same grid, tiles and layout, has in common with its twin."""
TENSOR_PATHS = "sm__ops_path_tensor_src_"
"""Operations by the type of the operands; ncu has no sum of them."""
HEADERS = (
    "Metric", "Unit", "Simulated", "Measured", "Diff", "Diff %", "Class", "Tolerance", "Verdict", "Cause")


@dataclass(frozen=True)
class Row:
    """Hold one metric of a pair: both values, class, tolerance, verdict, and the cause of a difference. unit:
    the measured one, where it is unlike."""

    metric: Metric
    simulated: Value
    measured: Value
    kind: str
    tolerance: Tolerance
    verdict: str
    cause: str
    unit: str = ""

    @property
    def error(self) -> float | None:
        """Return simulated / measured - 1; None where there is nothing to divide, or unlike units."""
        if self.kind == NOT_COMPARABLE or self.simulated is None or self.measured is None:
            return None
        more = self.simulated - self.measured
        return ratio(more, self.measured) if more else 0.0


def rows(launch: Launch, card: Measured, chosen: Sequence[Metric] = ()) -> list[Row]:
    """Return the rows of one pair, in the order of the table of metrics; only metrics that were measured.

    Raises BadOption where one began with cold caches and the other with warm ones.
    """
    if launch.l2 != card.l2:
        raise BadOption(f"{launch.kernel} was simulated with {launch.l2} caches and measured with {card.l2} "
                        f"ones{f' ({card.source})' if card.source else ''}: their traffic is not comparable; "
                        f"simulate with --l2 {card.l2}")
    card = with_tensor_flops(card)
    return [_row(m, launch, card) for m in chosen or metrics.METRICS if m.name in card.values]


def with_tensor_flops(card: Measured) -> Measured:
    """Return a measured launch with the sum of its tensor operations, where all their paths were measured.

    The sum alone is comparable for 8-bit floats: mma.sync takes the path of fp16, wgmma that of fp8 (h200
    facts 34 and 35).
    """
    paths = {name: n for name, n in card.values.items() if name.startswith(TENSOR_PATHS)}
    if not all(any(f"src_{source}" in name for name in paths) for source in ("fp8", "fp16", "bf16", "tf32")):
        return card
    return replace(card, values={**card.values, TENSOR_FLOPS: sum(paths.values())})


def _row(metric: Metric, launch: Launch, card: Measured) -> Row:
    ours, theirs = metrics.value(launch, metric.name), card.values[metric.name]
    kind = metrics.kind(launch, metric)
    allowed = tolerance(metric, launch)
    unlike = card.units.get(metric.name, "") not in ("", metric.unit) and metric.unit != ""
    why = ""
    if unlike:
        why = UNITS
    elif card.is_twin and metric.name not in TWIN:
        why = OTHER_CODE
    elif metric.name == TENSOR_FLOPS and theirs and not ours:
        why = NO_TENSOR
    if why or ours is None or kind == metrics.UNAVAILABLE:
        unit = card.units[metric.name] if unlike else ""
        return Row(metric, ours, theirs, NOT_COMPARABLE, allowed, NOT_COMPARABLE, why, unit)
    rounding = card.rounding.get(metric.name, 0.0)
    if abs(ours - theirs) <= rounding:
        return Row(metric, ours, theirs, kind, allowed, EQUAL, "")
    verdict = WITHIN if allowed.holds(ours, theirs, rounding) else DIFFERS
    return Row(metric, ours, theirs, kind, allowed, verdict, cause(metric, ours, theirs, launch, card))


def beside(launches: Sequence[Launch], measured: Sequence[Measured], chosen: Sequence[Metric] = (),
           every: bool = False, kernel: str = "") -> str:  # fmt: skip
    """Return simulated launches beside measured ones as text, a table a pair.

    chosen: only these metrics; every: metrics that are 0 on both sides, and those not comparable, too;
    kernel: what was simulated, see `partners`.
    Raises BadOption where there is nothing to compare, and for cold against warm caches.
    """
    cards = partners(launches, measured, kernel)
    lines: list[str] = []
    for note in pairing_notes(launches, cards, kernel):
        lines += [*paragraph(note, "WRN   "), ""]
    pairs = [(launch, card, rows(launch, card, chosen))
             for launch, card in zip(launches, cards, strict=False)]
    if all(r.kind == NOT_COMPARABLE for *_, found in pairs for r in found):
        why = "; ".join(why_nothing(*pairs[0][1:], chosen))
        raise BadOption(f"nothing can be compared: {why}")
    for launch, card, found in pairs:
        lines += [*_pair_lines(launch, card, found, chosen, every), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def why_nothing(card: Measured, found: Sequence[Row], chosen: Sequence[Metric] = ()) -> Iterator[str]:
    """Yield why no row of a pair is comparable: what was not measured, unlike units, names unknown here."""
    if absent := [m.name for m in chosen if m.name not in {r.metric.name for r in found}]:
        yield f"{', '.join(absent)} {'was' if len(absent) == 1 else 'were'} not measured"
    if unlike := unlike_units(found):
        yield f"unlike units of {', '.join(unlike)}"
    if others := [r.metric.name for r in found if r.cause == OTHER_CODE]:
        yield f"{backend(card)}'s machine code is another, which decides {', '.join(others)}"
    if others := [r.metric.name for r in found if r.cause not in (UNITS, OTHER_CODE)]:
        yield f"the simulator has no such number for {', '.join(others)}"
    if not card.values:
        yield f"{card.source or 'the file'} has no number for {card.kernel}"
    elif not found and not chosen:
        yield (f"the simulator has none of the {counted(len(card.values), 'metric')} that were measured, "
               f"such as {next(iter(card.values))}")


def backend(card: Measured) -> str:
    """Return the name of the backend that ran a launch."""
    return card.header.get("backend", "numba").capitalize()


def unlike_units(found: Sequence[Row]) -> list[str]:
    """Return "NAME (UNIT, measured in UNIT)" of each row whose units are unlike."""
    return [f"{r.metric.name} ({r.metric.unit}, measured in {r.unit})" for r in found if r.cause == UNITS]


def _pair_lines(launch: Launch, card: Measured, found: Sequence[Row], chosen: Sequence[Metric],
                every: bool) -> Iterator[str]:  # fmt: skip
    yield f"Simulated: {header(launch)}"
    name = card.header.get("card", "")
    yield f"Measured:  {card.kernel} {card.grid or ''}x{card.block or ''}  {name}".rstrip()
    for note in (*_notes(launch, card), *_left_out(card, found, chosen)):
        yield from paragraph(note, "WRN   ")
    shown = [r for r in found if every or chosen or r.kind != NOT_COMPARABLE and (r.simulated or r.measured)]
    judged = [r for r in shown if r.kind != NOT_COMPARABLE]
    counts = {v: sum(r.verdict == v for r in judged) for v in (EQUAL, WITHIN, DIFFERS)}
    yield (f"{counted(len(judged), 'metric')}: {counts[EQUAL]} equal, {counts[WITHIN]} within their "
           f"tolerance, {counts[DIFFERS]} beyond it.")
    names = metrics.row_names(r.metric for r in shown)
    cells = tuple(_cells(r, r.metric.name if chosen else names[r.metric]) for r in shown)
    if cells:
        yield from render(Table(HEADERS, cells, "llrrrrlrll"))


def _left_out(card: Measured, found: Sequence[Row], chosen: Sequence[Metric]) -> Iterator[str]:
    """Yield a sentence for the rows of a twin that its code decides, for those of unlike units, and for
    chosen metrics that were not measured."""
    if card.is_twin:
        others = sum(r.cause == OTHER_CODE for r in found)
        yield (f"{backend(card)}'s machine code is another than the simulated kernel's: "
               f"{counted(others, 'metric')} not comparable (--all lists them); grid, tiles and layout "
               "decide the rest.")
    if unlike := unlike_units(found):
        yield f"{counted(len(unlike), 'metric')} not compared, as the units are unlike: {', '.join(unlike)}."
    if absent := [m.name for m in chosen if m.name not in {r.metric.name for r in found}]:
        yield f"{counted(len(absent), 'metric')} not measured: {', '.join(absent)}."


def _cells(row: Row, name: str) -> tuple[Cell, ...]:
    comparable = row.kind != NOT_COMPARABLE and row.simulated is not None and row.measured is not None
    more = row.simulated - row.measured if comparable else None  # type: ignore[operator]
    percent = None if row.error is None else 100 * row.error
    return (name, row.metric.unit, row.simulated, row.measured, more, percent, row.kind,
            str(row.tolerance) if comparable else "", row.verdict, row.cause)


def _notes(launch: Launch, card: Measured) -> Iterator[str]:
    """Yield a sentence for each thing that makes the two more than two views of one launch."""
    for what in ("grid", "block"):
        theirs = getattr(card, what)
        if theirs not in (None, getattr(launch, what)):
            yield f"The {what}s differ: {getattr(launch, what)} simulated, {theirs} measured."
    name = card.header.get("card", "")
    if name and launch.arch.name.lower() not in name.lower():
        yield f"The GPUs differ: {launch.arch.title} simulated, {name} measured."
    if not launch.registers.is_sure:
        yield (f"Registers are {launch.registers.source}, not recorded for this kernel and GPU: what follows "
               "from them is modelled.")
    unknown = sum(name not in {m.name for m in metrics.METRICS} for name in card.values)
    if unknown:
        yield f"{counted(unknown, 'measured metric')} not shown: the simulator has no such metric."
