"""A timeline keeps the rules of the trace format, and its sums are the launch's counters."""

from __future__ import annotations

import copy
import gzip
import json
from functools import cache
from math import prod
from typing import Any

import pytest

import cli
import kernels_sim
from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import UnsupportedFeature
from gpusim.gpcs import deal
from gpusim.launch import Launch
from gpusim.trace import SECTOR_BYTES
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from visualize.replay_log import MAX_SLICES, ReplayLog
from visualize.trace_events import FIRST_SM, trace

Trace = dict[str, Any]
CASES = (
    ("flash_forward", {"N": 128, "Br": 32, "Bc": 32, "d": 32}),
    ("standard_attention", {"N": 64, "d": 32}),
    ("matmul_mma", {"M": 64, "N": 64, "K": 64}),
    ("histogram", {}),
    ("vec_add", {"n": 1 << 20}),
)
FLASH = tuple(CASES[0][1].items())
KINDS = {
    "load": ("global_load", "local_load"),
    "store": ("global_store", "local_store"),
    "atomic": ("global_red", "global_atom"),
}
"""Category of a slice -> the counters that its sectors are of."""


@cache
def replayed(name: str, options: tuple[tuple[str, Any], ...], engine: str = "auto", most: int = MAX_SLICES,
             l2: str = "cold") -> tuple[list[Launch], Trace]:  # fmt: skip
    """Return a shipped kernel's launches and their timeline, as a reader of the file gets it."""
    device, log = Device(get_arch("h200"), l2), ReplayLog(most)
    device.hierarchy.observer = log
    spec = kernels_sim.find(name)
    problem = spec.build(spec.options(**dict(options)), Data(0))
    problem.reference = None
    launches = run_problem(problem, device, engine=engine)
    return launches, json.loads(json.dumps(trace(launches, log)))


def cases() -> Any:
    return pytest.mark.parametrize(("name", "options"), [(n, tuple(o.items())) for n, o in CASES], ids=str)


def of_phase(found: Trace, phase: str) -> list[Trace]:
    return [e for e in found["traceEvents"] if e["ph"] == phase]


def broken_rules(found: Trace) -> list[str]:
    """List what is against the rules: event fields, names of tracks, order, nesting, totals that fall."""
    events = [e for e in found["traceEvents"] if e["ph"] != "M"]
    named = {(e["name"], e["pid"], e.get("tid")) for e in of_phase(found, "M") if e["args"].get("name")}
    said = [f"unknown phase {e['ph']}" for e in events if e["ph"] not in "XC"]
    for e in events:
        numbers = [e["ts"], e["pid"], e["tid"], e.get("dur", 1)]
        if not all(type(n) is int for n in numbers) or e["ts"] < 0 or e["pid"] < 1 or e["tid"] < 1:
            said.append(f"numbers {numbers}")
        if e["ph"] == "X" and e["dur"] < 1:
            said.append(f"empty slice at {e['ts']}")
        for track in (("process_name", e["pid"], None), ("thread_name", e["pid"], e["tid"])):
            if track not in named:
                said.append(f"no {track}")
    if [e["ts"] for e in events] != sorted(e["ts"] for e in events):
        said.append("ts not sorted")
    threads = {tid: pid for _, pid, tid in named if tid is not None}
    if len(threads) != sum(tid is not None for _, _, tid in named):
        said.append("two threads share a number")
    return [*said, *not_nested(events), *falling(events)]


def not_nested(events: list[Trace]) -> list[str]:
    """List the slices of a track that lie neither inside one that is open nor behind it."""
    said, open_ends = [], {}
    for e in (e for e in events if e["ph"] == "X"):
        ends = open_ends.setdefault((e["pid"], e["tid"]), [])
        while ends and ends[-1] <= e["ts"]:
            ends.pop()
        end = e["ts"] + e["dur"]
        if ends and end > ends[-1]:
            said.append(f"{e['name']} overlaps at {e['ts']}")
        ends.append(end)
    return said


def falling(events: list[Trace]) -> list[str]:
    """List the running totals that become smaller."""
    said, last = [], {}
    for e in (e for e in events if e["ph"] == "C" and e["name"] != "active warps"):
        for series, value in e["args"].items():
            if value < last.get((e["name"], series), 0):
                said.append(f"{e['name']} {series} falls at {e['ts']}")
            last[e["name"], series] = value
    return said


@cases()
def test_a_timeline_keeps_the_rules_of_the_format(name: str, options: Any) -> None:
    _, found = replayed(name, options)
    assert set(found) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert broken_rules(found) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda e: e.update(dur=e["dur"] + 999), "overlaps"),
        (lambda e: e.update(dur=0), "empty slice"),
        (lambda e: e.update(ts=e["ts"] + 0.5), "numbers"),
        (lambda e: e.update(ts=0), "ts not sorted"),
        (lambda e: e.update(tid=7), "no ('thread_name'"),
        (lambda e: e.update(ph="B"), "unknown phase"),
    ],
)
def test_a_slice_against_the_rules_is_found(change: Any, said: str) -> None:
    found = copy.deepcopy(replayed("flash_forward", FLASH)[1])
    change([e for e in found["traceEvents"] if e.get("cat") == "store"][-1])
    assert any(said in rule for rule in broken_rules(found))


def test_a_total_that_falls_is_found() -> None:
    found = copy.deepcopy(replayed("flash_forward", FLASH)[1])
    [e for e in found["traceEvents"] if e["name"].startswith("DRAM")][-1]["args"]["read"] = 1
    (rule,) = broken_rules(found)
    assert rule.startswith("DRAM bytes so far (modelled) read falls at ")


def totals_at(found: Trace, clock: int) -> dict[str, int]:
    """Return the running totals that stand at a moment of the clock, "DRAM read" and so on."""
    at: dict[str, int] = {}
    for e in of_phase(found, "C"):
        if e["ts"] <= clock and "so far" in e["name"]:
            at |= {f"{e['name'].split()[0]} {series}": n for series, n in e["args"].items()}
    return at


def expected_totals(launch: Launch) -> dict[str, int]:
    """Return what a launch adds to the totals, from its counters."""
    h = launch.counters.hierarchy
    return {
        "L1 hit": h.l1_load_hits * SECTOR_BYTES,
        "L1 miss": h.l1_load_misses * SECTOR_BYTES,
        "L2 read": h.l2_read * SECTOR_BYTES,
        "L2 write": h.l2_write * SECTOR_BYTES,
        "L2 atomic": (h.l2_red + h.l2_atom) * SECTOR_BYTES,
        "DRAM read": h.dram_read_bytes,
        "DRAM write": h.dram_write_bytes,
    }


@cases()
def test_the_totals_at_the_end_of_each_launch_are_its_counters(name: str, options: Any) -> None:
    launches, found = replayed(name, options)
    before = dict.fromkeys(expected_totals(launches[0]), 0)
    slices = [e for e in found["traceEvents"] if e.get("cat") == "launch"]
    assert [e["name"] for e in slices] == [launch.kernel for launch in launches]
    for launch, e in zip(launches, slices, strict=True):
        now = totals_at(found, e["ts"] + e["dur"])
        assert {k: now[k] - before[k] for k in before} == expected_totals(launch)
        before = now


@cases()
def test_the_requests_and_sectors_of_all_slices_are_the_counters(name: str, options: Any) -> None:
    launches, found = replayed(name, options)
    assert "all of them" in found["otherData"]["sampling"]
    for category, parts in KINDS.items():
        slices = [e["args"] for e in found["traceEvents"] if e.get("cat") == category]
        counted = [getattr(launch.counters, part) for launch in launches for part in parts]
        assert sum(a["sectors"] for a in slices) == sum(c.sectors for c in counted)
        assert sum(a["requests"] for a in slices) == sum(c.requests for c in counted)


@cases()
def test_every_block_has_a_slice_on_the_track_of_its_slot(name: str, options: Any) -> None:
    launches, found = replayed(name, options)
    names = {e["pid"]: e["args"]["name"] for e in of_phase(found, "M") if e["name"] == "process_name"}
    tracks = {e["tid"]: e["args"]["name"] for e in of_phase(found, "M") if e["name"] == "thread_name"}
    blocks = [e for e in found["traceEvents"] if e.get("cat") == "block"]
    grids = [g[0] * g[1] * g[2] for g in (launch.grid for launch in launches)]
    assert sorted(e["name"] for e in blocks) == sorted(f"block {b}" for n in grids for b in range(n))
    by_kernel = {launch.kernel: launch for launch in launches}
    assert len(by_kernel) == len(launches)
    for e in blocks:
        launch, number = by_kernel[e["args"]["kernel"]], int(e["name"].split()[1])
        slots = 132 * launch.occupancy.blocks_per_sm
        in_wave, before = number % slots, number // slots * slots
        blocks_of_wave = min(slots, prod(launch.grid) - before)
        sms = deal(launch.arch, blocks_of_wave, launch.occupancy.blocks_per_sm)
        assert names[e["pid"]] == f"SM {sms[in_wave]}"
        assert tracks[e["tid"]] == f"block slot {in_wave // 132}"
        x, y, z = e["args"]["block"]
        assert number == x + launch.grid[0] * (y + launch.grid[1] * z)


def test_the_picture_of_flash_attention_streams_k_and_v_between_barriers() -> None:
    _, found = replayed("flash_forward", FLASH)
    first = next(e for e in found["traceEvents"] if e["name"] == "block 0")
    own = [e for e in found["traceEvents"] if e["ph"] == "X" and e["tid"] == first["tid"]][1:]
    assert [e["name"] for e in own if e["cat"] in ("load", "store")] == [
        "load Q", *["load K, V"] * 4, "store L", "store O"
    ]  # fmt: skip
    assert sum(e["dur"] for e in own) == first["dur"]


def test_active_warps_are_those_of_the_blocks_that_still_run() -> None:
    launches, found = replayed("vec_add", (("n", 1 << 20),))
    warps = [e["args"]["warps"] for e in found["traceEvents"] if e["name"] == "active warps"]
    blocks, each = launches[0].grid[0], launches[0].block[0] // 32
    assert warps[0] == min(blocks, 132 * launches[0].occupancy.blocks_per_sm) * each
    assert warps[-1] == 0


def test_the_interpreter_makes_the_same_timeline() -> None:
    options = (("n", 700),)
    assert replayed("vec_add", options, "ir")[1] == replayed("vec_add", options)[1]


def test_a_sampled_timeline_says_so_and_keeps_the_totals_of_all_blocks() -> None:
    options = (("n", 1 << 20),)
    (launch, *_), whole = replayed("vec_add", options)
    _, few = replayed("vec_add", options, "auto", 10_000)
    slices = [e for e in of_phase(few, "X") if e["cat"] != "launch"]
    assert 5_000 < len(slices) <= 10_000 and broken_rules(few) == []
    about = few["otherData"]
    blocks = sum(e["cat"] == "block" for e in slices)
    kept = sorted({(e["pid"] - FIRST_SM) for e in slices})
    shown = f"SMs 0, {kept[1]}, {kept[2]}, ..., {kept[-1]} are shown"
    said = f"{blocks:,} of {launch.grid[0]:,} blocks in {len(slices):,} slices: {shown}, for "
    assert about["sampling"].startswith(said)
    assert "--max-slices 10,000" in about["sampling"] and about["max_slices"] == 10_000
    assert of_phase(few, "C") == of_phase(whole, "C")
    named = {e["args"]["name"] for e in of_phase(few, "M") if e["name"] == "process_name"}
    assert {name for name in named if name.startswith("SM ")} == {f"SM {sm}" for sm in kept}


def test_one_sm_alone_is_named_and_its_last_blocks_have_no_phases() -> None:
    _, few = replayed("vec_add", (("n", 1 << 20),), "auto", 40)
    slices = [e for e in of_phase(few, "X") if e["cat"] != "launch"]
    assert len(slices) <= 40 and {e["pid"] for e in slices} == {FIRST_SM} and broken_rules(few) == []
    assert "SM 0 alone is shown" in few["otherData"]["sampling"]
    assert "blocks without their phases" in few["otherData"]["sampling"]


def test_the_file_says_that_its_clock_is_no_time() -> None:
    _, found = replayed("flash_forward", FLASH)
    about = found["otherData"]
    assert "not time" in about["clock"] and "step of the replay" in about["time_unit"]
    assert any("not time" in e["args"].get("name", "") for e in of_phase(found, "M"))


def test_a_warm_launch_alone_is_shown_and_not_the_one_that_warmed_it() -> None:
    launches, found = replayed("flash_forward", FLASH, l2="warm")
    assert min(e["ts"] for e in of_phase(found, "X")) == 0 and broken_rules(found) == []
    last = max(e["ts"] for e in of_phase(found, "C"))
    assert totals_at(found, last) == expected_totals(launches[0])


def test_launches_that_nobody_watched_have_no_timeline() -> None:
    launches, _ = replayed("flash_forward", FLASH)
    with pytest.raises(UnsupportedFeature, match="no timeline of flash_forward"):
        trace(launches, ReplayLog())


# ------------------------------------------------------------------------------------------ the command


def test_the_command_writes_the_same_trace_plain_and_packed(tmp_path: Any, capsys: Any) -> None:
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    for file in (plain, packed):
        assert cli.run(["timeline", "vec_add", "--n", "700", "--out", str(file)]) == 0
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    found = json.loads(plain.read_text())
    assert broken_rules(found) == [] and found["otherData"]["options"]["n"] == 700
    # 700 elements: 3 blocks of 8, 8 and 6 warps; each warp loads x and y, then stores.
    assert capsys.readouterr().out.splitlines()[0] == (
        f"{plain}: 3 of 3 blocks in 47 slices: all of them. The clock counts steps of the replay, not time."
    )


def test_the_help_names_the_limit_that_there_is(capsys: Any) -> None:
    assert cli.run(["timeline", "--help"]) == 0
    assert f"Default: {MAX_SLICES:,}." in " ".join(capsys.readouterr().out.split())


NO_COMPILER = """
from numba import cuda

@cuda.jit
def say(x):
    print("thread", cuda.threadIdx.x)
    x[cuda.threadIdx.x] = 1.0
"""


@pytest.mark.parametrize(
    ("arguments", "out", "message"),
    [
        (["flash_forward"], "t.csv", "End the name in .json or .json.gz"),
        (["flash_forward"], "t.gz", "End the name in .json or .json.gz"),
        (["flash_forward"], "missing/t.json", "there is no directory"),
        (["flash_forward", "--engine", "oracle"], "t.json", "--engine oracle makes no trace"),
        (["flash_forward", "--max-slices", "0"], "t.json", "--max-slices"),
        (["{file}:say", "--grid", "1", "--block", "32", "--arg", "float32[32]"], "t.json",
         "only compiled kernels leave a trace"),
    ],
)
def test_the_command_refuses_with_one_message_and_no_file(
    arguments: list[str], out: str, message: str, tmp_path: Any, capsys: Any
) -> None:
    (tmp_path / "kernels.py").write_text(NO_COMPILER)
    arguments = [a.replace("{file}", str(tmp_path / "kernels.py")) for a in arguments]
    assert cli.run(["timeline", *arguments, "--out", str(tmp_path / out)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and message in err and "Traceback" not in err
    assert [f.name for f in tmp_path.iterdir() if "__pycache__" not in f.name] == ["kernels.py"]
