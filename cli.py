"""The command line: parse, call, print. `python cli.py --help`, or `gpusim --help` once installed.

A mistake of the user's is one message, `error: ...`, on stderr and exit status 2, with no traceback and
nothing half-written. A result that differs from the reference or from the closed form is printed in full, and
the exit status is 1; so it is where standard output cannot be written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from errno import EBADF
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import click

from gpusim.errors import UserError
from visualize.endings import film_format, picture_format, timeline_format

FILE_ARGUMENT = (
    "KERNEL is a shipped one (see `list`) or FILE.py:kernel with --grid, --block and one --arg a parameter."
)


class OutFile(click.ParamType):
    """Be the name of a file that is written."""

    name = "file"

    def __init__(self, check: Callable[[Path], object] | None = None) -> None:
        """Make one whose ending a function of visualize/endings.py judges, or one of any ending."""
        self.check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; raise BadOption for an empty one and a wrong ending."""
        from gpusim.errors import BadOption

        if not value:
            raise BadOption(f"{param.opts[0] if param else 'the file'} is empty; name a file")
        if self.check is not None:
            self.check(Path(value))
        return str(value)


class Command(click.Command):
    """Be a command whose unknown options are answered with all it has."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:  # fmt: skip
        """Judge the ending of a file before any kernel is loaded, which takes seconds; then parse."""
        for param in self.params:
            if isinstance(param.type, OutFile) and param.type.check is not None:
                name, option = param.opts[0], param.opts[0] + "="
                written = [value for before, value in zip(args, args[1:], strict=False) if before == name]
                written += [word.removeprefix(option) for word in args if word.startswith(option)]
                for value in written:
                    param.type.convert(value, param, None)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and name the options there are when one is unknown."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(f"{ctx.info_name} has no option {error.option_name}; "
                                   f"{self.instead(ctx)}", ctx) from None

    def instead(self, ctx: click.Context) -> str:
        """Return what there is instead of an unknown option."""
        return f"it has: {self.listed(ctx) or 'none but --help'}"

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; say what helps where memory is too small."""
        try:
            return super().invoke(ctx)
        except MemoryError as error:
            less = ctx.params.get("counts_only") is False
            helps = "--counts-only needs none for its arrays" if less else "make the problem smaller"
            raise click.ClickException("this machine has too little memory for the problem "
                                       f"({str(error) or 'no more is left'}); {helps}") from None

    def listed(self, ctx: click.Context) -> str:
        """Return the names of the options in one line."""
        return ", ".join(
            p.opts[0] for p in self.get_params(ctx) if isinstance(p, click.Option) and "--help" not in p.opts
        )


class KernelCommand(Command):
    """Be a command whose options depend on the kernel among its arguments: its own, or those of a launch for
    FILE.py:kernel.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Find the kernel first, then parse with its options."""
        ctx.meta["kernel"] = kernel_among(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and without a kernel also those of FILE.py:kernel."""
        super().format_options(ctx, formatter)
        if ctx.meta.get("kernel") is None:
            with formatter.section("Options of FILE.py:kernel (a shipped kernel has its own: simulate KERNEL "
                                   "--help)"):
                formatter.write_dl([r for o in FILE_OPTIONS if (r := o.get_help_record(ctx)) is not None])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of the kernel before those that all kernels share."""
        return [*kernel_params(ctx.meta.get("kernel")), *super().get_params(ctx)]

    def listed(self, ctx: click.Context) -> str:
        """Return the kernel's own options, then the shared ones."""
        own = ", ".join(p.opts[0] for p in kernel_params(ctx.meta.get("kernel")))
        shared = ", ".join(p.opts[0] for p in self.params if isinstance(p, click.Option))
        return f"{own} (of {ctx.meta['kernel'] or 'the kernel'}); {shared}"


def kernel_among(args: Sequence[str]) -> str | None:
    """Return the argument that names a kernel.

    Values of options are passed over where a shipped name or FILE.py:kernel stands.
    """
    import kernels_sim
    from dsl.programs.target import is_file_target

    words = [a for a in args if not a.startswith("-")]
    known = set(kernels_sim.names()) if words else set()
    return next(
        (w for w in words if w in known or is_file_target(w)),
        words[0] if words and words[0] == args[0] else None,
    )


def kernel_params(kernel: str | None) -> list[click.Parameter]:
    """Return the options that belong to a kernel; raise UnknownName for a kernel that does not exist."""
    from dsl.programs.target import is_file_target

    if kernel is None or is_saved(kernel):
        return []
    if is_file_target(kernel):
        return list(FILE_OPTIONS)
    import kernels_sim
    from kernels_sim.options import options_of

    return [click_option(o) for o in options_of(kernels_sim.find(kernel)) if o.name != "seed"]


def is_saved(word: str) -> bool:
    """Return whether an argument names launches that `simulate --format json` saved, not a kernel."""
    return word.endswith(".json")


class WholeNumber(click.types.IntParamType):
    """Be an integer that the 64-bit arithmetic of kernels and closed forms holds."""

    limit = 1 << 62

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the integer; fail with the limit where it is beyond."""
        number = int(super().convert(value, param, ctx))
        if abs(number) > self.limit:
            self.fail(f"it must lie between -2**62 and 2**62 ({self.limit:,})", param, ctx)
        return number


class RegisterCount(click.types.IntParamType):
    """Be a number of registers, or the word ptxas."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number of at least 1, or the word."""
        if value == "ptxas":
            return value
        number = int(super().convert(value, param, ctx))
        if number < 1:
            self.fail(f"{number} is not in the range x>=1.", param, ctx)
        return number


def click_option(option: Any) -> click.Option:
    """Return a kernel's option as click has it.

    The name keeps its case, and q_start may be written --q-start or --q_start.
    """
    spellings = list(dict.fromkeys([option.flag, "--" + option.name]))
    if option.type is bool:
        spellings = [f"{option.flag}/--no-{option.flag[2:]}"]
    kind = click.Choice(option.choices) if option.choices else option.type
    kind = WholeNumber() if kind is int else kind
    shown = option.default is not None and option.type is not bool
    return click.Option(
        [option.name, *spellings], type=kind, default=option.default, help=option.help, show_default=shown
    )


FILE_OPTIONS = (
    click.Option(["--grid"], required=True, metavar="X[,Y[,Z]]", help="Blocks of the grid (FILE.py:kernel)."),
    click.Option(
        ["--block"], required=True, metavar="X[,Y[,Z]]", help="Threads of a block (FILE.py:kernel)."
    ),
    click.Option(
        ["--shared"],
        type=click.IntRange(0),
        default=0,
        metavar="BYTES",
        help="Dynamic shared memory (FILE.py:kernel).",
    ),
    click.Option(
        ["--arg"],
        multiple=True,
        metavar="VALUE",
        help="3, 0.5, float32:0.5, "
        "float32[64,64][=randn|rand|zeros|ones|arange|"
        "nan|ints(LO,HI)|NUMBER] or @FILE.npy, in order or as NAME=VALUE; once a parameter "
        "(FILE.py:kernel).",
    ),
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def stacked(*options: Decorator) -> Decorator:
    """Return a decorator that adds several options in the order they stand."""
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function
    return add


gpu_option = click.option("--gpu", default="h200", show_default=True, help="The GPU to simulate; see `gpus`.")
l2_option = click.option(
    "--l2",
    type=click.Choice(["cold", "warm"]),
    default="cold",
    show_default=True,
    help="Caches empty before each launch, as ncu measures, or as the previous launch left them.",
)
max_steps_option = click.option(
    "--max-steps",
    type=click.IntRange(1),
    metavar="N",
    help="Steps of a warp after which a loop counts as endless: a pass of while, or 1,000 of for.",
)
strict_index_option = click.option("--strict-index", is_flag=True, help="Make a negative index an error.")
seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random inputs."
)
out_option = click.option("--out", type=OutFile(), metavar="FILE",
                          help="Write there instead of on the screen, whole or not at all.")  # fmt: skip
running = stacked(
    gpu_option,
    l2_option,
    click.option(
        "--regs",
        type=RegisterCount(),
        metavar="N|ptxas",
        help="Registers a thread, or ptxas: as numba-cuda and ptxas compile the kernel; default: recorded or "
        "estimated.",
    ),
    click.option("--counts-only", is_flag=True, help="Count without computing values."),
    click.option(
        "--engine",
        type=click.Choice(["auto", "compiled", "ir", "oracle"]),
        default="auto",
        show_default=True,
        help="Machine code, the interpreter of WarpIR, or the kernel's Python source; auto: machine code, "
        "and the source for a kernel that the compiler does not take.",
    ),
    click.option(
        "--atomic-order",
        type=click.IntRange(0),
        metavar="SEED",
        help="Run a wave's blocks, and so their atomics, in an order of this seed; say what changes.",
    ),
    max_steps_option,
    strict_index_option,
)
showing = stacked(
    click.option(
        "--format", "form", type=click.Choice(["text", "json", "ncu-csv"]), default="text", show_default=True
    ),
    click.option(
        "--metrics", metavar="LIST", help="Only these metrics, by ncu's names, with commas between."
    ),
    click.option(
        "--section", metavar="NAME", help="Only this section of the text, by ncu's identifier or title."
    ),
    click.option(
        "--by-line",
        is_flag=True,
        help="Add the counters of each source line, and what to try at the worst; JSON has them always, "
        "ncu-csv never.",
    ),
    out_option,
    click.option("--html", type=OutFile(), metavar="FILE",
                 help="Write all of the report as one page with pictures, too."),
)


def print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version of the installed package, or of pyproject.toml beside this file."""
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("gpusim")
    except PackageNotFoundError:
        import re

        project = Path(__file__).with_name("pyproject.toml").read_text(encoding="utf-8")
        number = (re.findall(r'^version = "(.+)"$', project, re.MULTILINE) or ["unknown"])[0]
    click.echo(f"gpusim {number}")
    ctx.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=print_version,
    help="Print the version.",
)
def cli() -> None:
    """Count what a Python GPU kernel does to a GPU that you do not have."""


@cli.command(cls=KernelCommand, epilog=FILE_ARGUMENT)
@click.argument("kernel")
@running
@seed_option
@showing
def simulate(
    kernel: str,
    gpu: str,
    l2: str,
    form: str,
    metrics: str | None,
    section: str | None,
    by_line: bool,
    out: str | None,
    html: str | None,
    **rest: Any,
) -> int:
    """Run a kernel on the simulated GPU and report what it did.

    `simulate KERNEL --help` lists the options of that kernel too.
    """
    from gpusim.formats import check_request, formatted
    from kernels_sim.run import failed

    names = check_request(form, metrics, section, by_line, rest["engine"])
    check_outputs(out, html)
    launches = simulated(kernel, gpu, l2, rest)
    emit(formatted(launches, form, names, section, by_line), out)
    emit_page(launches, kernel.rpartition(":")[2], html)
    return 1 if any(map(failed, launches)) or (by_line and not lines_add_up(launches)) else 0


def simulated(kernel: str, gpu: str, l2: str, rest: dict[str, Any], observer: Any = None) -> list[Any]:
    """Return the launches of a kernel on a simulated GPU; rest: the kernel's options and how to run it.

    observer: who watches the replay (gpusim/observer.py).
    """
    return simulated_problem(kernel, gpu, l2, rest, observer)[1]


def simulated_problem(kernel: str, gpu: str, l2: str, rest: dict[str, Any],
                      observer: Any = None,
                      places: dict[str, Any] | None = None) -> tuple[Any, list[Any]]:  # fmt: skip
    """Return the problem of a kernel and its launches; see `simulated`.

    places: filled with name -> device array where it is given, and results are not checked then.
    """
    from dsl.host.device import Device
    from gpusim.arch import get_arch
    from gpusim.launch import Registers
    from gpusim.report_progress import progress_bar
    from kernels_sim.run import run_problem

    device = Device(get_arch(gpu), l2=l2, atomic_order=rest.pop("atomic_order"))
    if observer is not None:
        device.hierarchy.observer = observer
    regs, settings = (
        rest.pop("regs"),
        {k: rest.pop(k) for k in ("counts_only", "engine", "max_steps", "strict_index")},
    )
    with progress_bar(kernel) as progress:
        if progress is not None:
            progress.begin()  # reading and compiling the kernel and its closed form count too
        problem, options = problem_of(kernel, rest.pop("seed"), settings["counts_only"], rest)
        spilled = registers_of_ptxas(problem, gpu) if regs == "ptxas" else []
        problem = problem if places is None else placed(problem, device, places)
        launches = run_problem(
            problem,
            device,
            registers=Registers(regs, "given", "--regs") if isinstance(regs, int) else None,
            progress=progress,
            options=options,
            **settings,
        )
    for launch, note in zip(launches, spilled, strict=False):
        launch.notes += (note,)
    return problem, launches


def registers_of_ptxas(problem: Any, gpu: str) -> list[str]:
    """Give each launch of a problem the registers that ptxas says, and return a sentence on each."""
    from dataclasses import replace

    from gpusim.arch import get_arch
    from kernels_real.ptxas import resources

    capability = get_arch(gpu).compute_capability
    taken = [resources(step.kernel, step.args, capability) for step in problem.steps]
    problem.steps = tuple(
        replace(step, registers=r.registers, registers_source=r.source)
        for step, r in zip(problem.steps, taken, strict=True)
    )
    return [f"{r.source}: {r.registers} registers a thread, a stack frame of {r.stack_bytes:,} bytes in "
            f"local memory, {r.spill_bytes:,} bytes spilled (not simulated)." for r in taken]  # fmt: skip


def lines_add_up(launches: Sequence[Any]) -> bool:
    """Return whether the counters of source lines add up to those of every launch."""
    from gpusim.by_line import differing

    return not any(map(differing, launches))


def problem_of(
    kernel: str, seed: int, counts_only: bool, values: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return the problem to run and the options to show with it, of a shipped kernel or of FILE.py:kernel."""
    from dsl.programs.target import is_file_target
    from kernels_sim.run import problem_of_file, shipped

    if is_file_target(kernel):
        return problem_of_file(kernel, seed=seed, virtual=counts_only, **values), {
            k: v for k, v in values.items() if v
        }
    return shipped(kernel, seed, counts_only, values)


@cli.command(cls=KernelCommand, epilog=FILE_ARGUMENT)
@click.argument("kernel")
@click.option("--out", type=OutFile(timeline_format), required=True, metavar="FILE",
              help="A name in .json or .json.gz, for https://ui.perfetto.dev.")
@click.option("--max-slices", type=click.IntRange(1), metavar="N",
              help="Slices of blocks and phases to keep; beyond, SMs are left out. Default: 100,000.")
@running
@seed_option
def timeline(kernel: str, gpu: str, l2: str, out: str, max_slices: int | None, **rest: Any) -> int:
    """Run a kernel and write its replay as a trace for Perfetto: what each SM's blocks do, turn by turn.

    The clock is that of the replay, requests and barriers; it is no time of the card.
    """
    from gpusim.errors import UnsupportedFeature
    from gpusim.output import write_whole
    from kernels_sim.run import failed
    from visualize.replay_log import MAX_SLICES, ReplayLog
    from visualize.trace_events import engine_with_trace, said, trace, without_trace, written

    check_writable(out)
    log = ReplayLog(max_slices or MAX_SLICES)
    engine = engine_with_trace(rest["engine"])
    try:
        launches = simulated(kernel, gpu, l2, rest | {"engine": engine}, log)
    except UnsupportedFeature as refusal:
        raise without_trace(kernel, refusal) from None
    found = trace(launches, log)
    write_whole(Path(out), written(found, out))
    click.echo(f"{out}: {said(found)}")
    if any(map(failed, launches)):
        return fail("a value or a counter is not what it should be; simulate says which", 1)
    return 0


@cli.command(cls=Command, context_settings={"allow_interspersed_args": False})
@gpu_option
@l2_option
@click.option("--kernel-name", default="", metavar="REGEX", help="Report kernels whose name it matches "
                                                                 "(regex: may stand before it).")
@click.option("--launch-skip", type=click.IntRange(0), default=0, metavar="N", help="Matching launches to "
                                                                                    "pass over.")
@click.option("--launch-count", type=click.IntRange(0), metavar="N", help="Matching launches to report.")
@strict_index_option
@max_steps_option
@showing
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def profile(
    script: str,
    arguments: tuple[str, ...],
    gpu: str,
    l2: str,
    kernel_name: str,
    launch_skip: int,
    launch_count: int | None,
    strict_index: bool,
    max_steps: int | None,
    form: str,
    metrics: str | None,
    section: str | None,
    by_line: bool,
    out: str | None,
    html: str | None,
) -> int:
    """Run an unmodified numba.cuda SCRIPT with its ARGUMENTS and report every launch, as ncu does."""
    import gpusim
    from gpusim.formats import check_request, formatted
    from gpusim.report_progress import progress_bar

    names = check_request(form, metrics, section, by_line)
    check_outputs(out, html)
    # What the script prints must not stand inside a JSON or CSV file that goes to the same stream.
    apart = nullcontext() if form == "text" or out else redirect_stdout(sys.stderr)
    with (
        gpusim.profile(
            gpu,
            l2,
            kernel_name=kernel_name,
            launch_skip=launch_skip,
            launch_count=launch_count,
            strict_index=strict_index,
            max_steps=max_steps,
        ) as session,
        progress_bar("simulating") as session.progress,
        apart,
    ):
        status, mistake = _run_script(Path(script), arguments)
    if session.reports or mistake is None:
        emit(formatted(session.reports, form, names, section, by_line), out)
        emit_page(session.reports, Path(script).name, html)
    if mistake is not None:  # the launches before it have been reported all the same
        raise mistake
    for remark in (*launches_missing(script, session), *session.remarks):
        click.echo(f"note: {remark}", err=True)
    return status or int(by_line and not lines_add_up(session.reports))


def launches_missing(script: str, session: Any) -> list[str]:
    """Return why a run has no report, or not one of each launch that was asked for."""
    from gpusim.table import counted

    launched = counted(session.launched, "kernel") if session.launched else "no kernel"
    if session.failed:
        failed = counted(session.failed, "launch")
        return [f"{script} launched {launched}; {failed} failed and left no report, and the script went on"]
    if session.reports:
        return []
    return [f"{script} launched {launched}{', and none that was asked for' if session.launched else ''}"]


def _run_script(script: Path, arguments: Sequence[str]) -> tuple[int, UserError | None]:
    """Run a script; return its exit status, and the mistake that stopped it."""
    from dsl.programs.target import run_script

    try:
        return run_script(script, arguments), None
    except UserError as mistake:
        return 2, mistake


class CompareCommand(KernelCommand):
    """Be a command that takes two files, or with --measured or --backend a kernel and its options."""

    of_files = ("baseline", "other", "metrics", "every", "measured", "backend", "out")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look for a kernel only where something measured stands beside it."""
        with_kernel = any(a.partition("=")[0] in ("--measured", "--backend") for a in args)
        ctx.meta["kernel"] = kernel_among(args) if with_kernel else None
        return Command.parse_args(self, ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of a simulation only where there is a kernel to simulate."""
        params = super().get_params(ctx)
        if ctx.meta.get("kernel") is None:
            return [p for p in params if p.name in self.of_files or "--help" in p.opts]
        return [p for p in params if p.name != "other"]


@cli.command(cls=CompareCommand, epilog=FILE_ARGUMENT + " Its options follow it.")
@click.argument("baseline", metavar="A.json|KERNEL")
@click.argument("other", metavar="B.json")
@click.option("--measured", metavar="FILE", help="Simulate KERNEL and hold it against what ncu measured: any "
                                                 "CSV of ncu.")
@click.option("--backend", type=click.Choice(["numba", "triton"]), help="Measure KERNEL on this machine's "
                                                                        "GPU first; see measure.")
@click.option("--set", "configuration", multiple=True, metavar="NAME=N",
              help="What the backend leaves open, such as num_warps=4.")
@click.option("--metrics", metavar="LIST", help="Only these metrics, with commas between.")
@click.option("--all", "every", is_flag=True, help="Metrics that are equal or not comparable, too.")
@running
@seed_option
@out_option
def compare(baseline: str, metrics: str | None, every: bool, out: str | None, other: str | None = None,
            measured: str | None = None, backend: str | None = None, **rest: Any) -> None:  # fmt: skip
    """Compare two simulated launches, or a simulated one with a measured one.

    A.json is the baseline; both files were made by `simulate --format json --out`. With --measured or
    --backend a kernel is simulated with its options and held against the card.
    """
    from gpusim.compare import comparison
    from gpusim.formats import metric_names

    names = metric_names(metrics) if metrics else ()
    check_writable(out)
    if measured is not None and backend is not None:
        raise click.UsageError("give --measured FILE or --backend, not both")
    if measured is not None or backend is not None:
        emit(beside_measured(baseline, measured, backend, names, every, rest), out)
        return
    emit(comparison(baseline, other or "", names, every), out)


def beside_measured(kernel: str, file: str | None, backend: str | None, names: Any, every: bool,
                    rest: dict[str, Any]) -> str:  # fmt: skip
    """Return a kernel's simulated launches beside those of a file, or of this machine's GPU."""
    from gpusim.beside import beside
    from gpusim.measured import parse_measured

    configuration = rest.pop("configuration")
    own = {str(p.name): rest[str(p.name)] for p in kernel_params(kernel)}
    if file is not None:
        cards = measured_in(file, kernel, own)
    else:
        text, _ = measured_text(kernel, str(backend), configuration, rest["seed"], own)
        cards = parse_measured(text, f"what {backend} measured")
    return beside(simulated(kernel, rest.pop("gpu"), rest.pop("l2"), rest), cards, names, every, kernel)


def measured_in(file: str, kernel: str, own: dict[str, Any]) -> list[Any]:
    """Return the launches of a file of ncu's, or those of a kernel with these options that one recorded."""
    from gpusim.measured import read_measured
    from kernels_real.recordings import is_recording, read

    if not is_recording(Path(file)):
        return list(read_measured(file))
    alike = with_options(read(Path(file)), kernel, all_options(kernel, own), file)
    return [r.measured for r in alike if r.job == alike[0].job]


def all_options(kernel: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a kernel with the defaults of those that are not given."""
    from dataclasses import asdict

    from dsl.programs.target import is_file_target
    from kernels_sim import find
    from kernels_sim.options import check_values

    if is_file_target(kernel):
        return given
    check_values(find(kernel), given)
    return asdict(find(kernel).options(**given))


def with_options(recorded: Iterable[Any], kernel: str, wanted: dict[str, Any], where: str) -> list[Any]:
    """Return the recorded launches of a kernel that have these options; raise BadOption where none has."""
    from gpusim.errors import BadOption

    of_kernel = [r for r in recorded if r.job.kernel == kernel]
    alike = [r for r in of_kernel if wanted.items() <= recorded_options(r).items()]
    if not alike:
        have = "; ".join(dict.fromkeys(r.job.title for r in of_kernel)) or "nothing of this kernel"
        raise BadOption(f"{where}: no launch of {kernel} with these options; recorded: {have}")
    return alike


def recorded_options(r: Any) -> dict[str, Any]:
    """Return all options of a recorded launch; raise BadOption, with its line, for one that is wrong."""
    from gpusim.errors import BadOption, UserError

    try:
        return all_options(r.job.kernel, r.job.options)
    except UserError as mistake:
        raise BadOption(f"{r.where}: {mistake}") from mistake


measuring = stacked(
    click.option("--backend", type=click.Choice(["numba", "triton"]), required=True,
                 help="The kernel's own source through numba-cuda, or its Triton version."),
    click.option("--set", "configuration", multiple=True, metavar="NAME=N",
                 help="What the backend leaves open, such as num_warps=4."),
)


@cli.command(cls=KernelCommand, epilog=FILE_ARGUMENT)
@click.argument("kernel")
@measuring
@seed_option
@out_option
def measure(kernel: str, backend: str, configuration: tuple[str, ...], seed: int, out: str | None,
            **options: Any) -> int:  # fmt: skip
    """Run a kernel on this machine's GPU under ncu, check its values, and write ncu's raw CSV.

    Caches are cold, clocks are left alone. `compare KERNEL --measured FILE` takes the file.
    """
    check_writable(out)
    text, wrong = measured_text(kernel, backend, configuration, seed, options)
    emit(text, out)
    return 1 if wrong else 0


def measured_text(kernel: str, backend: str, configuration: Sequence[str], seed: int,
                  options: dict[str, Any]) -> tuple[str, bool]:  # fmt: skip
    """Return the CSV of one kernel's launches with a header, and whether a value was wrong."""
    from gpusim.errors import LaunchRefused
    from kernels_real.jobs import Job
    from kernels_real.measuring import header, measure, with_header

    given = {name: value for name, value in options.items() if value not in (None, ())}
    session = measure([Job(kernel, backend, given, numbers(configuration), seed)])
    for outcome, rows in session.pairs:
        if not rows:
            raise LaunchRefused(f"nothing was measured: {outcome.failure or 'ncu saw no such launch'}")
        for name, error in outcome.errors.items():
            verdict = "WRONG" if name in outcome.wrong else "ok"
            other = outcome.rounded.get(name)
            said = f"; {other:,} elements rounded to the neighbour" if other else ""
            click.echo(f"{name}: error {error:.2g}, tolerance {outcome.tolerance:.2g}: {verdict}{said}",
                       err=True)
    said = {"kernel": kernel, "backend": backend, **{k: str(v) for k, v in given.items()}, **header()}
    return with_header(session.raw, said), any(outcome.wrong for outcome, _ in session.pairs)


@cli.command(cls=Command)
@click.option("--from", "folder", metavar="DIR", help="Recorded measurements of one's own; default: the "
                                                      "project's.")
@click.option("--kernel", "only", multiple=True, metavar="NAME", help="Only this kernel; may stand several "
                                                                      "times.")
@click.option("--set", "subset", type=click.Choice(["fit", "test"]), help="Only the launches that the model "
              "is fitted on, or only those that judge it; default: both.")
@click.option("--all", "every", is_flag=True, help="List the numbers beyond their tolerance, with causes.")
@click.option("--processes", type=click.IntRange(1), metavar="N", help="Default: one a processor, at most 4.")
@out_option
def validate(folder: str | None, only: tuple[str, ...], subset: str | None, every: bool,
             processes: int | None, out: str | None) -> None:  # fmt: skip
    """Simulate all recorded measurements again and print how far the numbers lie apart. No GPU is needed."""
    from gpusim.accuracy import accuracy_text
    from gpusim.goals import goals_text

    check_writable(out)
    found = replays(recordings(folder, only, subset), processes)
    goals = goals_text([r.case for r in found if not r.spills])
    emit("\n".join(filter(None, [accuracy_text(by_title(found), every), goals])), out)


def recordings(folder: str | None = None, only: Sequence[str] = (), subset: str | None = None) -> list[Any]:
    """Return the recorded launches of a folder, or of the project; only: of these kernels, if any; subset:
    "fit" or "test", of both if None. Raise UnknownName for a kernel that has none."""
    from dsl.semantics.near import listed
    from gpusim.errors import UnknownName
    from kernels_real.recordings import FOLDER, read_all

    found = [r for r in read_all(Path(folder) if folder else FOLDER) if subset in (None, r.subset)]
    kernels = sorted({r.job.kernel for r in found})
    for name in only:
        if name not in kernels:
            where = f"the {subset} set" if subset else "the recordings"
            raise UnknownName(f"no launch of {name!r} is in {where}; {listed('it has', kernels)}")
    return [r for r in found if not only or r.job.kernel in only]


def recorded_entries(recorded: Sequence[Any], processes: int | None) -> dict[str, list[Any]]:
    """Return title -> entries of recorded launches, simulated again."""
    return by_title(replays(recorded, processes))


def by_title(replayed: Iterable[Any]) -> dict[str, list[Any]]:
    """Return title of a list of recorded launches -> the entries of those that were simulated again."""
    from kernels_real.recorded_launches import list_of

    found: dict[str, list[Any]] = {}
    for r in replayed:
        found.setdefault(TITLES[list_of(r.recorded.job)], []).extend(r.entries)
    return {t: found[t] for t in TITLES.values() if t in found}


TITLES = {
    "numba": "The same source through numba-cuda",
    "triton": "Triton versions beside their simulated twins",
    "micro": "Microbenchmarks of the caches, through numba-cuda",
}


def replays(recorded: Sequence[Any], processes: int | None = None, arch: Any = None) -> list[Any]:
    """Return recorded launches simulated again (kernels_real.replaying.Replayed), in their order.

    processes: default one a processor, at most 4. arch: the GPU; default: the H200.
    """
    from dsl.host.device import host_cores
    from gpusim.arch import get_arch
    from gpusim.report_progress import progress_bar
    from kernels_real.replaying import replay

    kernels = len({r.job.kernel for r in recorded})
    used = min(processes or min(4, host_cores()), max(1, kernels))
    again = partial(job_launches, arch=arch or get_arch("h200"), threads=max(1, host_cores() // used))
    with progress_bar("replaying", "kernels") as progress:
        return replay(recorded, again, used, progress)


def job_launches(job: Any, registers: dict[int, int], arch: Any, threads: int) -> list[Any]:
    """Return the launches of a job, simulated with the registers that are known; of values only what counts
    depend on is computed."""
    from dataclasses import replace

    from dsl.host.device import Device
    from dsl.programs.target import is_file_target
    from kernels_real.recordings import with_data
    from kernels_sim.run import problem_of_file, run_problem, shipped

    counts_only = not with_data(job.kernel)
    if is_file_target(job.target):
        file = Path(job.target.rpartition(":")[0])
        changed_ns = file.stat().st_mtime_ns if file.is_file() else 0
        check_recorded_options(job)
        problem = problem_of_file(loaded(job.target, changed_ns), seed=job.seed, virtual=True, **job.options)
    else:
        problem, _ = shipped(job.kernel, job.seed, counts_only, job.options)
    problem.steps = tuple(
        replace(step, registers=registers[i], registers_source="measured") if i in registers else step
        for i, step in enumerate(problem.steps)
    )
    problem.reference = None
    return run_problem(problem, Device(arch, threads=threads), counts_only=counts_only, options=job.options)


def check_recorded_options(job: Any) -> None:
    """Raise BadOption where the recorded options of a kernel in a file are not those of the command line."""
    from gpusim.errors import BadOption

    kinds = {"grid": str, "block": str, "shared": int, "arg": list}
    missing = [name for name in ("grid", "block") if name not in job.options]
    wrong = [name for name, value in job.options.items() if type(value) is not kinds.get(name)]
    if missing or wrong or not all(isinstance(word, str) for word in job.options.get("arg", ())):
        name = (missing or wrong or ["arg"])[0]
        raise BadOption(f"option {name} of {job.kernel} is {job.options.get(name)!r}; there are grid and "
                        'block such as "128,1", shared in bytes, and arg, a list of words')


@lru_cache(maxsize=1)
def loaded(target: str, changed_ns: int) -> Any:
    """Return a kernel of a file that changed at a time: its launches share what is compiled."""
    from dsl.programs.target import load_kernel

    return load_kernel(target)


def numbers(configuration: Sequence[str]) -> dict[str, int]:
    """Return NAME=N words as a dict; fail for another word."""
    pairs = [word.partition("=") for word in configuration]
    for name, _, number in pairs:
        if not name or not number.isdigit():
            raise click.BadParameter(f"write --set NAME=N, not {name}={number}")
    return {name: int(number) for name, _, number in pairs}


@cli.command("run-jobs", cls=Command, hidden=True)
@click.argument("jobs")
@click.argument("outcomes")
@click.option("--seconds", type=float, default=float("inf"))
@click.option("--compile-only", is_flag=True)
def run_listed(jobs: str, outcomes: str, seconds: float, compile_only: bool) -> None:
    """Run a list of JOBS on the GPU: the program that `measure` and kernels_real.record start under ncu."""
    from kernels_real.jobs import read_jobs
    from kernels_real.workload import compile_jobs, run_jobs
    from kernels_sim.check import checks

    def build(job: Any) -> Any:
        return problem_of(job.target, job.seed, False, dict(job.options))[0]

    if compile_only:
        compile_jobs(read_jobs(Path(jobs)), build)
    else:
        run_jobs(read_jobs(Path(jobs)), build, checks, Path(outcomes), seconds)


class KernelsCommand(Command):
    """Be a command on several kernels: it has the options of all, and each kernel takes those it has."""

    words_before = 0
    """Words of the command before the first kernel."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Find the kernels first, then parse with their options."""
        ctx.meta["kernels"] = kernels_among(args, self.words_before)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of all kernels, each name once, before those of the picture."""
        own = {str(p.name): p for k in reversed(ctx.meta.get("kernels", ())) for p in kernel_params(k)}
        return [*map(as_written, own.values()), *super().get_params(ctx)]

    def instead(self, ctx: click.Context) -> str:
        """Return what there is instead of an unknown option; nothing runs again for saved launches."""
        saved = list(filter(is_saved, ctx.meta["kernels"]))
        if saved and len(saved) == len(ctx.meta["kernels"]):
            return f"{saved[0]} holds launches that ran already, so that no option of their kernel applies"
        return super().instead(ctx)

    def listed(self, ctx: click.Context) -> str:
        """Return the options of the kernels, then those of the picture."""
        of_kernels = dict.fromkeys(p.opts[0] for k in ctx.meta["kernels"] for p in kernel_params(k))
        shared = ", ".join(p.opts[0] for p in self.params if isinstance(p, click.Option))
        return f"{', '.join(of_kernels) or 'none'} (of the kernels); {shared}"


class PlotCommand(KernelsCommand):
    """Be a command whose kernels follow the kind of picture."""

    words_before = 1


def kernels_among(args: Sequence[str], words_before: int) -> list[str]:
    """Return the kernels among arguments: the words before the first option, but for so many at the start,
    and known ones later.
    """
    from itertools import takewhile

    import kernels_sim
    from dsl.programs.target import is_file_target

    leading = list(takewhile(lambda a: not a.startswith("-"), args))
    known = set(kernels_sim.names())
    later = (w for w in args[len(leading):] if w in known or is_file_target(w) and not w.startswith("-"))
    return list(dict.fromkeys([*leading[words_before:], *later]))


def as_written(option: click.Parameter) -> click.Parameter:
    """Return a kernel's option as `plot` takes it: None where it is not given, else what was written."""
    from copy import copy

    made = copy(option)
    made.default, made.required = None, False
    if isinstance(made, click.Option):
        made.show_default = False
    if not isinstance(made.type, click.types.BoolParamType):
        made.type = click.STRING
    return made


PICTURES = {"memory-chart": "memory_chart", "roofline": "roofline", "occupancy": "occupancy_chart",
            "sweep": "sweep", "pipeline": "pipeline", "banks": "banks",
            "heatmap": "heatmap", "compare": "compare"}  # fmt: skip
"""Kind of picture -> its module of visualize."""
OF_SAVED = ("memory-chart", "roofline", "occupancy", "banks")
"""Kinds that start from launches alone, so that saved ones do."""
OWN_OPTIONS = {"over": "sweep", "metric": "sweep", "folder": "compare", "measured": "roofline"}
"""Option of `plot` -> the kind that it belongs to."""


@cli.command(cls=PlotCommand, epilog=FILE_ARGUMENT)
@click.argument("kind", type=click.Choice(list(PICTURES)), metavar="KIND")
@click.argument("kernels", nargs=-1, metavar="KERNEL...")
@click.option("--over", metavar="NAME=A,B,...", help="sweep: the values that an option takes.")
@click.option("--metric", metavar="NAME", help="sweep: the metric to draw; default: dram__bytes_read.sum.")
@click.option("--from", "folder", metavar="DIR", help="compare: recorded measurements of one's own.")
@click.option("--measured", metavar="FILE|recorded", help="roofline: what a card reached, too, by any CSV of "
                                                          "ncu or the project's recorded measurements.")
@running
@seed_option
@click.option("--out", type=OutFile(picture_format), metavar="FILE",
              help="A file that ends in .png, .svg or .pdf; default: KIND.png here.")
def plot(kind: str, kernels: tuple[str, ...], out: str | None, **rest: Any) -> int:
    """Draw what kernels did, with the numbers of the report.

    memory-chart: threads, L1, L2 and DRAM, with the bytes between them. roofline: FLOPs a byte at each level
    under the roofs of the GPU. occupancy: blocks an SM over threads, registers and shared memory. sweep: a
    metric over an option. pipeline: launches and buffers, with bytes. banks: wavefronts a bank of each line's
    shared accesses. heatmap: how often each tile of each tensor is read and written. compare: simulated
    against recorded measurements, of all kernels where none is named. Kernels share a picture; an option
    holds for every kernel that has it. A KERNEL may be FILE.json of `simulate --format json --out` where a
    picture starts from counters alone.
    """
    from visualize.save import save

    target = Path(out or f"{kind}.png")
    check_writable(str(target))
    check_kind(kind, kernels, rest)
    runs: list[Any] = []
    save(drawn(kind, kernels, rest, runs), target)
    click.echo(f"wrote {target}")
    return told_wrong(runs)


def check_kind(kind: str, kernels: Sequence[str], rest: dict[str, Any]) -> None:
    """Refuse a picture without kernels, and options that belong to another kind of picture."""
    if not kernels and kind != "compare":
        raise click.UsageError(f"{kind} needs a KERNEL; see list")
    if kind == "sweep" and "=" not in (rest["over"] or ""):
        raise click.UsageError("sweep needs --over NAME=A,B,..., such as --over N=256,512,1024")
    for name, own in OWN_OPTIONS.items():
        if rest[name] is not None and kind != own:
            raise click.UsageError(f"{written_options([name])[0]} belongs to {own}, not to {kind}")
    saved = list(filter(is_saved, kernels))
    if saved and kind not in OF_SAVED:
        raise click.UsageError(f"{kind} runs kernels, and {saved[0]} holds launches; they can be drawn as "
                               f"{', '.join(OF_SAVED)}")
    run_nothing = "compare simulates as it was measured" if kind == "compare" else (
        f"{saved[0]} was simulated already" if len(saved) == len(kernels) and saved else "")
    if run_nothing and (useless := written_options(HOW_TO_RUN)):
        raise click.UsageError(f"{run_nothing}: it takes no {' and no '.join(useless)}")


HOW_TO_RUN = ("gpu", "l2", "regs", "counts_only", "engine", "atomic_order", "max_steps", "strict_index",
              "seed")  # fmt: skip
"""Parameters of `plot` that say how to simulate."""


def written_options(names: Iterable[str]) -> list[str]:
    """Return, of parameters of the present command, the options that stand on the command line."""
    context = click.get_current_context()
    written = click.core.ParameterSource.COMMANDLINE
    params = {str(p.name): p.opts[0] for p in context.command.params}
    return [params[name] for name in names if context.get_parameter_source(name) is written]


def drawn(kind: str, kernels: Sequence[str], rest: dict[str, Any], runs: list[Any]) -> Any:
    """Return the figure of a kind; add what was run for it to `runs`."""
    from importlib import import_module

    figure = import_module(f"visualize.{PICTURES[kind]}").figure
    over, metric, folder, measured = (rest.pop(name) for name in OWN_OPTIONS)
    if kind == "compare":
        found = recorded_entries(recorded_alike(folder, kernels, rest), None)
        return figure({t: own for t, own in found.items() if t != TITLES["micro"]} or found)
    if kind == "heatmap":
        return figure([touched(kernel, rest, runs) for kernel in kernels])
    if kind == "sweep":
        from gpusim.metrics import find

        name, _, values = over.partition("=")
        wanted = find(metric or "dram__bytes_read.sum").name
        runs += [plotted(k, rest, name, value)[0] for k in kernels for value in values.split(",")]
        return figure(runs, name, wanted)
    made = [(saved_run(kernel), None) if is_saved(kernel) else plotted(kernel, rest) for kernel in kernels]
    runs += [run for run, _ in made]
    if kind == "pipeline":
        return figure(runs, {run.title: by_parameter(problem) for run, problem in made})
    if measured is not None:
        return figure(runs, reached(runs, kernels, measured))
    return figure(runs)


def saved_run(file: str) -> Any:
    """Return the launches of a file as a run, called by their kernels, their sizes and the file."""
    from gpusim.compare import read_launches
    from gpusim.errors import BadOption
    from visualize.run import Run

    launches = tuple(read_launches(file))
    if not launches:
        raise BadOption(f"{file} holds no launch to draw")
    kernels = ", ".join(dict.fromkeys(launch.kernel for launch in launches))
    return Run(f"{run_title(kernels, launches[0].options, {})} ({Path(file).name})", launches)


def recorded_alike(folder: str | None, kernels: Sequence[str], rest: dict[str, Any]) -> list[Any]:
    """Return the recorded launches of kernels that have the options given for them; of all where none is
    named."""
    recorded = recordings(folder)
    if not kernels:
        return recorded
    where = folder or "the project's recordings"
    return [r for kernel in kernels for r in with_options(recorded, kernel, given_of(kernel, rest), where)]


def given_of(kernel: str, rest: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a kernel that stand on the command line, each as the kernel takes it."""
    options = {str(o.name): o for o in kernel_params(kernel)}
    return {name: taken_by(o, kernel, rest[name]) for name, o in options.items()
            if rest.get(name) not in (None, ())}  # fmt: skip


def reached(runs: Sequence[Any], kernels: Sequence[str], measured: str) -> list[Any]:
    """Return what a card reached with each run: as a file says, or each backend of the recordings."""
    from visualize import measured_points
    from visualize.roofline import does_flops

    if saved := list(filter(is_saved, kernels)):
        raise click.UsageError(f"--measured goes with kernels, as {saved[0]} does not say which options to "
                               "look for; name the kernel")
    return [
        measured_points.reached(run, i, label, cards)
        for i, (run, kernel) in enumerate(zip(runs, kernels, strict=True))
        if does_flops(run)  # the picture leaves out a run without any, and says so
        for label, cards in measured_of(kernel, run.launches[0].options, measured).items()
    ]


def measured_of(kernel: str, options: dict[str, Any], measured: str) -> dict[str, list[Any]]:
    """Return what a picture calls a measurement -> its launches, of a file or of the project's recordings."""
    own = {str(o.name): options.get(str(o.name)) for o in kernel_params(kernel)}
    if measured != "recorded":
        return {Path(measured).name: measured_in(measured, kernel, own)}
    alike = with_options(recordings(None), kernel, all_options(kernel, own), "the project's recordings")
    jobs: dict[str, Any] = {}
    for r in alike:
        jobs.setdefault(r.job.backend, r.job)
    return {backend: [r.measured for r in alike if r.job == job] for backend, job in jobs.items()}


@cli.command(cls=KernelsCommand, epilog=FILE_ARGUMENT)
@click.argument("kernels", nargs=-1, required=True, metavar="KERNEL...")
@click.option("--frames", type=click.IntRange(2, 400), metavar="N",
              help="The most frames; default: 72 for one kernel, 96 for several.")
@click.option("--fps", type=click.IntRange(1, 50), default=10, show_default=True, help="Frames a second.")
@running
@seed_option
@click.option("--out", type=OutFile(film_format), metavar="FILE", default="animation.gif", show_default=True,
              help="A file that ends in .gif, .mp4 (needs ffmpeg) or .html.")
def animate(kernels: tuple[str, ...], frames: int | None, fps: int, out: str, **rest: Any) -> int:
    """Show launches byte by byte: tensors as tiles that light up, L2 and SMs, running counters.

    Several kernels stand side by side on one clock, the bytes that their SMs ask for; it is no time of the
    card. An option holds for every kernel that has it. The totals are those of the report.
    """
    from gpusim.output import write_whole
    from gpusim.report_progress import progress_bar
    from visualize.film import films
    from visualize.movie import check_count, written

    if saved := list(filter(is_saved, kernels)):
        raise click.UsageError(f"an animation runs kernels, and {saved[0]} holds launches; name the kernel")
    check_count(len(kernels))
    check_writable(out)
    watched = [watched_kernel(kernel, rest) for kernel in kernels]
    shown = films(watched, frames or (72 if len(kernels) == 1 else 96))
    with progress_bar("drawing", "frames") as bar:
        write_whole(Path(out), written(shown, film_format(Path(out)), fps, bar or (lambda *_: None)))
    click.echo(f"wrote {out}: {shown[0].frames} frames of {shown[0].frame_bytes:,.0f} bytes asked for by SMs")
    return told_wrong([run for run, _, _ in watched])


def watched_kernel(kernel: str, rest: dict[str, Any]) -> tuple[Any, Any, list[dict[str, str]]]:
    """Return a kernel's run, the log of its replay, and the names of its arrays, launch by launch."""
    from gpusim.arch import get_arch
    from gpusim.errors import UnsupportedFeature
    from visualize.byte_log import ByteLog
    from visualize.trace_events import engine_with_trace, without_trace

    log = ByteLog(get_arch(rest["gpu"]).sm_count)
    engine = engine_with_trace(rest["engine"], "an animation")
    try:
        run, problem = plotted(kernel, rest | {"engine": engine}, observer=log)
    except UnsupportedFeature as refusal:
        raise without_trace(kernel, refusal, "animation") from None
    return run, log, by_parameter(problem)


def told_wrong(runs: Sequence[Any]) -> int:
    """Return 1 and name the runs, if any, whose result is not what the reference says; else 0."""
    from kernels_sim.run import failed

    wrong = dict.fromkeys(run.title for run in runs if any(map(failed, run.launches)))
    return fail(f"{', '.join(wrong)}: not what the reference says; see simulate", 1) if wrong else 0


def touched(kernel: str, rest: dict[str, Any], runs: list[Any]) -> Any:
    """Return the tensors of a kernel with how often each sector was touched; add the run to `runs`."""
    from visualize.heatmap import Touched, Touches, tensor

    touches = Touches()
    places: dict[str, Any] = {}
    cold = rest | {"l2": "cold"}  # what is asked for does not depend on caches, and nothing runs twice
    run, _ = plotted(kernel, cold, observer=touches, places=places)
    runs.append(run)
    tensors = (tensor(touches, name, a.address, a.shape, a.dtype.itemsize) for name, a in places.items())
    return Touched(run.title, tuple(tensors))


def placed(problem: Any, device: Any, places: dict[str, Any]) -> Any:
    """Return a problem whose arrays lie on the device; add each to `places` by its name.

    It has no reference: results stay on the device. Arrays with gaps are left where they are.
    """
    from dataclasses import replace

    from dsl.host.device import DeviceArray

    steps = []
    for step, names in zip(problem.steps, buffer_names(problem), strict=True):
        args = list(step.args)
        for i, array in enumerate(args):
            name = names.get(i)
            if name is None or not getattr(array, "flags", {"C_CONTIGUOUS": True})["C_CONTIGUOUS"]:
                continue
            if name not in places:
                places[name] = DeviceArray(device, array.shape, array.dtype)
                if hasattr(array, "__array__"):
                    places[name].copy_to_device(array)
            args[i] = places[name]
        steps.append(replace(step, args=tuple(args)))
    return replace(problem, steps=tuple(steps), reference=None)


def plotted(kernel: str, rest: dict[str, Any], over: str = "", value: str = "",
            observer: Any = None, places: dict[str, Any] | None = None) -> tuple[Any, Any]:  # fmt: skip
    """Return a kernel's launches as a run with a title, and its problem.

    rest: the options of all kernels, and how to run. over, value: an option that this run has instead, which
    the title leaves out. observer and places as in `simulated_problem`.
    """
    from visualize.run import Run

    options = kernel_params(kernel)
    if over and over not in [o.name for o in options]:
        raise click.UsageError(f"{kernel} has no option {over} to sweep")
    context = click.get_current_context()
    given = {}
    for option in options:
        written = value if option.name == over else rest.get(str(option.name))
        if written is None and option.required:
            raise click.MissingParameter(ctx=context, param=option)
        if written is not None or option in FILE_OPTIONS:  # those have no defaults beside click's
            given[str(option.name)] = taken_by(option, kernel, written)
    mine = {str(p.name): rest[str(p.name)] for p in context.command.params if p.name in rest}
    gpu, l2 = mine.pop("gpu"), mine.pop("l2")
    problem, launches = simulated_problem(kernel, gpu, l2, mine | given, observer, places)
    said = {k: v for k, v in launches[0].options.items() if k != over}
    return Run(run_title(kernel, said, given), tuple(launches)), problem


def buffer_names(problem: Any) -> list[dict[int, str]]:
    """Return, for each launch of a problem, number of an argument -> the name of that array.

    An array is called as the problem calls it or the array that it shows, or as the first launch that takes
    it does; of two of one name the second is "x (2)".
    """
    named = problem.inputs | problem.outputs
    known = {id(array): name for name, array in named.items()}
    shown = {buffer(array): name for name, array in named.items()}
    taken = {known.get(id(array)) for step in problem.steps for array in step.args}
    found = []
    for step in problem.steps:
        arrays = {i: a for i, a in enumerate(step.args) if getattr(a, "shape", ())}
        for i, array in arrays.items():
            if id(array) not in known:
                name = shown.get(buffer(array))
                free = name is not None and name not in taken
                known[id(array)] = name if free else unused(parameters(step)[i], known.values())
                taken.add(known[id(array)])
        found.append({i: known[id(array)] for i, array in arrays.items()})
    return found


def buffer(array: Any) -> tuple[int, int]:
    """Return what two arrays over the same storage have in common: where it is, and its bytes."""
    if hasattr(array, "__array_interface__"):
        return array.__array_interface__["data"][0], array.nbytes
    return id(array), 0


def unused(name: str, taken: Iterable[str]) -> str:
    """Return a name, or with the first number from 2 on where it is taken."""
    from itertools import chain, count

    names = chain([name], (f"{name} ({n})" for n in count(2)))
    return next(free for free in names if free not in taken)


def parameters(step: Any) -> list[str]:
    """Return the names of a launch's parameters."""
    import inspect

    return list(inspect.signature(step.kernel.py_func).parameters)


def by_parameter(problem: Any) -> list[dict[str, str]]:
    """Return, for each launch of a problem, parameter -> the name of the array that it was given."""
    return [
        {parameters(step)[i]: name for i, name in names.items()}
        for step, names in zip(problem.steps, buffer_names(problem), strict=True)
    ]


def taken_by(option: click.Parameter, kernel: str, value: Any) -> Any:
    """Return a value that was written as a kernel's option takes it; fail with the kernel's name."""
    context = click.get_current_context()
    try:
        return option.type_cast_value(context, option.default if value is None else value)
    except click.BadParameter as error:
        raise click.BadParameter(f"{error.message} ({kernel})", context, option) from None


def run_title(kernel: str, options: dict[str, Any], given: dict[str, Any]) -> str:
    """Return a kernel's name with the options that were given, and its sizes."""
    shown = {name: value for name, value in options.items()
             if name in given or type(value) is int and value > 1 and name != "seed"}  # fmt: skip
    said = (f"{name}={' '.join(v) if isinstance(v, tuple) else v}" for name, v in shown.items())
    return " ".join([kernel.rpartition(":")[2], *said])


@cli.command(cls=Command)
@click.argument("figure", required=False)
@click.option("--batch", type=click.IntRange(1, 64), default=64, show_default=True,
              help="Sequences to run, of 64; one takes seconds.")
@out_option
def reproduce(figure: str | None, batch: int, out: str | None) -> int:
    """Count a published FIGURE again and say where its numbers come from; without one, list them all."""
    from kernels_sim.reproductions import find, overview
    from kernels_sim.run import failed

    if figure is None:
        click.echo(overview())
        return 0
    module = find(figure)
    check_writable(out)
    pipelines = module.simulate(batch)
    emit(module.report(pipelines, batch), out)
    return 1 if any(failed(launch) for launches in pipelines for launch in launches) else 0


@cli.command("list", cls=Command)
def list_kernels() -> int:
    """List the shipped kernels, each with its options and their defaults."""
    import kernels_sim
    from gpusim.table import paragraph
    from kernels_sim.options import summary

    specs, broken = kernels_sim.all_specs()
    for spec in specs:
        click.echo(
            "\n".join([*paragraph(f"{spec.name}: {spec.summary}"), *paragraph(summary(spec), "    "), ""])
        )
    for module, error in broken.items():
        fail(f"kernels_sim/{module}.py does not load: {type(error).__name__}: {error}")
    return 1 if broken else 0


@cli.command(cls=Command)
def gpus() -> None:
    """List the GPUs that can be simulated."""
    from gpusim.arch import ARCHES
    from gpusim.gpu_text import gpu_table

    click.echo(gpu_table(ARCHES.values()), nl=False)


@cli.command(cls=Command)
@click.option("--threads", type=click.IntRange(1), required=True, help="Threads of a block.")
@click.option("--regs", type=click.IntRange(1), required=True, help="Registers of a thread.")
@click.option("--smem", type=click.IntRange(0), default=0, show_default=True, help="Bytes of shared memory "
                                                                                   "of a block.")
@gpu_option
def occupancy(threads: int, regs: int, smem: int, gpu: str) -> None:
    """Say how many blocks share an SM, and what limits them."""
    from gpusim.arch import get_arch
    from gpusim.gpu_text import occupancy_text

    click.echo(occupancy_text(get_arch(gpu), threads, regs, smem), nl=False)


@cli.command(cls=Command)
@click.argument("metric", required=False)
def explain(metric: str | None) -> None:
    """Say what a METRIC counts, its unit, and whether it is exact or modelled; without one, list them all."""
    from gpusim.explain import explain as explained
    from gpusim.explain import overview

    click.echo(explained(metric) if metric else overview())


def check_writable(out: str | None) -> None:
    """Raise CannotWrite before any work is done for an output that could not be written after it."""
    if out is not None:
        from gpusim.output import check_writable

        check_writable(Path(out))


def check_outputs(out: str | None, html: str | None) -> None:
    """Raise CannotWrite before any work for a report or a page that could not be written after it, and
    BadOption where both are one file."""
    from gpusim.errors import BadOption

    if out is not None and html is not None and os.path.realpath(out) == os.path.realpath(html):
        raise BadOption(f"--out and --html both name {html}; give each a file of its own")
    check_writable(out)
    check_writable(html)


def emit_page(launches: Sequence[Any], title: str, html: str | None) -> None:
    """Write the page of some launches to its file, if one was asked for, and say so."""
    if html is None:
        return
    from gpusim.output import write_whole
    from visualize.html_report import page

    write_whole(Path(html), page(launches, title))
    click.echo(f"wrote {html}", err=True)


def emit(text: str, out: str | None) -> None:
    """Write a report to its file whole, or print it: in colour on a terminal, plain elsewhere."""
    if out is not None:
        from gpusim.output import write_whole

        write_whole(Path(out), text)
    elif sys.stdout is not None and sys.stdout.isatty() and not text.startswith(("{", "[", '"')):
        from rich.console import Console

        from gpusim.report import show

        show(text, Console())
    else:
        click.echo(text, nl=False)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status: 0, 1 for a wrong result, 2 for a mistake of the user's.
    """
    try:
        status = cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), err=True)
        return 2
    except click.ClickException as error:
        return fail(error.format_message() + see_help(error))
    except UserError as error:
        return fail(str(error))
    except (KeyboardInterrupt, click.Abort):
        return fail("interrupted", 130)
    return status if isinstance(status, int) else 0


def see_help(error: click.ClickException) -> str:
    """Return where the usage stands, for a command line that lacks something or has too much of it."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    said = isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
    if ctx is None or said or not isinstance(ctx.command, Command) or "has no option" in error.message:
        return ""
    stop = "" if error.format_message().endswith(".") else "."
    return f"{stop} See {ctx.info_name} --help: {ctx.command.get_usage(ctx).removeprefix('Usage: ')}"


def fail(message: str, status: int = 2) -> int:
    """Print one message on stderr and return the exit status."""
    click.echo(f"error: {message}", err=True)
    return status


def main() -> None:
    """Be the entry point of `python cli.py` and of the `gpusim` command."""
    try:
        if sys.stdout is None:
            raise OSError(EBADF, "it is closed")
        status = run()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) went away; that is no mistake
        status = without_stdout(0)
    except OSError as error:
        if error.filename is not None:
            raise
        status = without_stdout(fail(f"cannot write to standard output: {error.strerror or error}; "
                                     "--out FILE writes a report elsewhere", 1))
    sys.exit(status)


def without_stdout(status: int) -> int:
    """Return the status, after what still waits to be written was dropped: Python would try again at exit."""
    with suppress(OSError, AttributeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


if __name__ == "__main__":
    main()
