"""JSON of launches: everything comes back, and what is not ours is refused."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from gpusim.arch import fingerprint_of, get_arch
from gpusim.counters import Arithmetic, Counters, Hierarchy, SpaceCounts
from gpusim.errors import BadOption
from gpusim.launch import Check, Fact, LineAccess
from gpusim.launch_json import dump, load
from gpusim.metrics import METRICS, values


def damaged(sample, change) -> str:
    """Return a dump of one launch after a change of its dictionary."""
    whole = json.loads(dump([sample]))
    change(whole["launches"][0])
    return json.dumps(whole)


def test_a_launch_comes_back_equal(sample) -> None:
    sample.options = {"N": 64, "causal": True}
    back = load(dump([sample]))
    assert back == [sample]
    assert values(back[0]) == values(sample)


def test_several_launches_keep_their_order(sample) -> None:
    other = dataclasses.replace(sample, kernel="second", grid=(1, 1, 1))
    assert [launch.kernel for launch in load(dump([sample, other, sample]))] == ["sample", "second", "sample"]
    assert load(dump([])) == []


def test_every_metric_is_there_with_its_value_unit_and_kind(sample) -> None:
    metrics = json.loads(dump([sample]))["launches"][0]["metrics"]
    assert list(metrics) == [m.name for m in METRICS]
    assert metrics["dram__bytes_read.sum"] == {"value": 8704, "unit": "byte", "kind": "modelled"}
    assert metrics["gpu__time_duration.sum"] == {"value": None, "unit": "ns", "kind": "n/a"}


def test_what_the_oracle_does_not_count_is_null_and_comes_back_as_na(sample) -> None:
    sample.engine, sample.counters.arithmetic, sample.counters.hierarchy = "oracle", Arithmetic(), Hierarchy()
    sample.options = {}
    text = dump([sample])
    launch = json.loads(text)["launches"][0]
    assert launch["counters"]["arithmetic"] is None and launch["counters"]["hierarchy"] is None
    assert launch["metrics"]["dram__bytes_read.sum"] == {"value": None, "unit": "byte", "kind": "n/a"}
    assert launch["metrics"]["gpusim__fp32_flops.sum"]["value"] is None
    assert launch["metrics"]["gpusim__barrier_warps.sum"]["value"] == 37
    back = load(text)
    assert back == [sample] and values(back[0]) == values(sample)
    assert back[0]["dram__bytes_read.sum"] is None


def test_a_part_that_is_null_though_the_engine_counts_it_is_an_error(sample) -> None:
    with pytest.raises(BadOption, match="damaged"):
        load(damaged(sample, lambda launch: launch["counters"].update(hierarchy=None)))


def test_the_gpu_is_there_with_its_fingerprint(sample) -> None:
    arch = json.loads(dump([sample]))["launches"][0]["arch"]
    assert (arch["name"], arch["sm_count"], arch["fingerprint"]) == ("h200", 132,
                                                                     get_arch("h200").fingerprint())


def test_a_gpu_that_has_changed_since_comes_back_as_it_was(sample) -> None:
    sample.arch = dataclasses.replace(sample.arch, name="x1", l2_bytes=1 << 20, sources={})
    assert load(dump([sample]))[0].arch == sample.arch


def test_numbers_that_json_lacks_come_back_too(sample) -> None:
    sample.checks = (Check("O", math.nan, 1e-5), Check("L", math.inf, 1e-5))
    text = dump([sample])
    assert "NaN" not in text and "Infinity" not in text
    back = load(text)[0].checks
    assert math.isnan(back[0].error) and back[1].error == math.inf and back[1].tolerance == 1e-5


def test_facts_come_back_whole_and_a_file_without_them_has_none(sample) -> None:
    sample.options = {}
    sample.facts = (Fact("Tiles", 4096, "tile"),
                    Fact("Moved", 12, "element", "3 N", {"global_load.bytes": 2}, 4, 13, "Tiles"))
    assert load(dump([sample])) == [sample]
    assert load(damaged(sample, lambda launch: launch.pop("facts")))[0].facts == ()


def test_a_fact_that_is_damaged_is_an_error(sample) -> None:
    sample.facts = (Fact("Tiles", 4096, "tile"),)
    with pytest.raises(BadOption, match="damaged: TypeError"):
        load(damaged(sample, lambda launch: launch["facts"][0].pop("value")))


def test_source_lines_come_back_whole_and_a_file_without_them_has_none(sample) -> None:
    sample.options = {}
    line = Counters.zero()
    line.global_load, line.barriers = SpaceCounts(3200, 12_800, 100, 400), 37
    sample.lines = {("k.py", 12): line, ("a.py", 3): Counters.zero()}
    sample.accesses = (
        LineAccess("k.py", 12, "global_load", "x", 4, 100, 3200, 400, None, 4),
        LineAccess("k.py", 13, "shared_store", "s", 4, 100, 3200, 400, 100, None, 16, 128, 128))
    text = dump([sample])
    assert json.loads(text)["launches"][0]["lines"] == [
        {"file": "a.py", "line": 3, "counters": {}},
        {"file": "k.py", "line": 12, "counters": {
            "global_load.lanes": 3200, "global_load.bytes": 12_800, "global_load.requests": 100,
            "global_load.sectors": 400, "barriers": 37}}]
    assert load(text) == [sample]
    without = damaged(sample, lambda launch: [launch.pop(name) for name in ("lines", "accesses")])
    assert (load(without)[0].lines, load(without)[0].accesses) == ({}, ())


def test_shared_accesses_as_compiled_come_back_and_may_be_missing(sample) -> None:
    sample.options = {}
    whole = json.loads(dump([sample]))["launches"][0]
    assert whole["as_compiled"]["shared_load"] == {
        "instructions": 50, "wavefronts": 1600, "ideal_wavefronts": 60}
    assert load(dump([sample])) == [sample]
    silent = damaged(sample, lambda launch: launch.pop("as_compiled"))
    assert load(silent)[0].as_compiled is None
    sample.as_compiled = None
    assert json.loads(dump([sample]))["launches"][0]["as_compiled"] is None
    assert load(dump([sample])) == [sample]


@pytest.mark.parametrize("path", ["global_load.nothing", "nothing", "global_load"])
def test_a_source_line_with_a_counter_that_is_none_is_an_error(sample, path: str) -> None:
    line = {"file": "k.py", "line": 1, "counters": {path: 1}}
    with pytest.raises(BadOption, match="damaged: KeyError"):
        load(damaged(sample, lambda launch: launch.update(lines=[line])))


def test_options_may_hold_numpy_numbers_and_tuples(sample) -> None:
    sample.options = {"n": np.int64(3), "scale": np.float32(0.5), "tile": (16, 16), "dtype": np.dtype("f4")}
    assert load(dump([sample]))[0].options == {"n": 3, "scale": 0.5, "tile": [16, 16], "dtype": "float32"}


@pytest.mark.parametrize(("text", "message"), [
    ("", "is not JSON"), ("{", "is not JSON"), ("[1, 2]", "not of this simulator"),
    ('{"traceEvents": []}', "not of this simulator"),
    ('{"format": "gpusim-launches", "version": 99, "launches": []}', "version 99 .* reads 1"),
    ('{"format": "gpusim-launches", "version": 1}', "damaged: KeyError: 'launches'")])
def test_a_text_that_is_not_ours_is_refused_with_the_name_of_the_file(text: str, message: str) -> None:
    with pytest.raises(BadOption, match=f"^a.json.*{message}"):
        load(text, "a.json")


def test_a_counter_that_is_missing_is_an_error_and_not_zero(sample) -> None:
    with pytest.raises(BadOption, match="damaged: KeyError: 'sectors'"):
        load(damaged(sample, lambda launch: launch["counters"]["global_load"].pop("sectors")))
    with pytest.raises(BadOption, match="damaged: KeyError: 'barriers'"):
        load(damaged(sample, lambda launch: launch["counters"].pop("barriers")))


def test_a_gpu_edited_by_hand_is_an_error(sample) -> None:
    with pytest.raises(BadOption, match="do not have the fingerprint"):
        load(damaged(sample, lambda launch: launch["arch"].update(sm_count=1)))


def test_a_grid_of_two_dimensions_is_an_error(sample) -> None:
    with pytest.raises(BadOption, match="damaged"):
        load(damaged(sample, lambda launch: launch.update(grid=[1, 2])))


def test_a_file_from_before_a_gpu_had_a_field_is_read(sample) -> None:
    def older(item) -> None:
        arch = item["arch"]
        del arch["l2_bytes_per_second"], arch["fingerprint"]
        arch["fingerprint"] = fingerprint_of(arch)

    (loaded,) = load(damaged(sample, older))
    assert loaded.arch.l2_bytes_per_second is None and loaded.counters == sample.counters
