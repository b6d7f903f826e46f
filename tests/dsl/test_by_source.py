"""What is not compiled, the Python oracle runs: right values, and n/a for what it cannot know."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gpusim
from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim import launch_json, metrics
from gpusim.arch import get_arch
from gpusim.errors import KernelMistake, LaunchRefused, OutOfBounds, UnsupportedFeature, UserError
from gpusim.launch import Launch
from gpusim.report import text

H200 = get_arch("h200")


@cuda.jit
def reversed_view(o, x):
    i = cuda.grid(1)
    [part] = [x[4:][::-1]]
    if i < part.size:
        o[i] = part[i]


def run_reversed(**options) -> tuple[np.ndarray, Launch]:
    o, x = np.zeros(64, np.float32), np.arange(68, dtype=np.float32)
    return o, launch(reversed_view, 2, 32, (o, x), Device(H200), **options)


def test_the_oracle_runs_what_is_not_compiled_and_a_note_names_construct_and_line():
    o, run = run_reversed()
    assert o.tolist() == list(range(67, 3, -1))
    assert run.engine == "oracle"
    said = "in reversed_view: a list is not in the kernel language; "
    assert run.notes[0].startswith(f"not compiled: {__file__}:26: {said}")


def test_its_requests_and_sectors_are_those_of_the_addresses():
    _, run = run_reversed()
    # x[4:] begins 16 bytes into a sector: 32 floats backwards touch 5 sectors, in each of the two warps.
    load, store = run.counters.global_load, run.counters.global_store
    assert (load.requests, load.lanes, load.bytes, load.sectors) == (2, 64, 256, 10)
    assert (store.requests, store.lanes, store.bytes, store.sectors) == (2, 64, 256, 8)


def test_a_view_of_a_device_array_keeps_its_place_in_a_sector():
    device = Device(H200)
    with gpusim.session.use(gpusim.session.Session(H200, device=device)):
        whole = cuda.to_device(np.arange(72, dtype=np.float32))
        o = cuda.device_array(64, np.float32)
        run = launch(reversed_view, 2, 32, (o, whole[4:]), device)
    assert o.copy_to_host().tolist() == list(range(71, 7, -1))
    assert run.counters.global_load.sectors == 8  # 4 + 4 floats: the view begins at a sector


def test_what_it_does_not_count_is_not_zero():
    _, run = run_reversed()
    for name in (
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "lts__t_sectors_op_read.sum",
        "launch__registers_per_thread", "gpusim__blocks_per_sm", "launch__waves_per_multiprocessor",
        "launch__occupancy_limit_shared_mem", "sm__maximum_warps_per_active_cycle_pct",
    ):  # fmt: skip
        assert run[name] is None, name
        assert metrics.kind(run, metrics.find(name)) == "n/a"
    assert run["launch__occupancy_limit_warps"] == 64


def test_given_registers_decide_the_occupancy():
    _, run = run_reversed(registers=gpusim.launch.Registers(128, "given"))
    assert run["launch__registers_per_thread"] == 128
    assert run["gpusim__blocks_per_sm"] == 16


def test_the_report_says_what_is_unknown():
    _, run = run_reversed()
    said = text([run])
    rows = {line.split("  ")[0]: line.split()[-2:] for line in said.splitlines()}
    assert rows["Registers Per Thread"] == ["n/a", "unknown"]
    assert rows["Theoretical Occupancy"] == ["n/a", "unknown"]
    assert "The register count is not known, and what follows from it is n/a; --regs N sets it." in said


def test_json_keeps_what_is_unknown():
    _, run = run_reversed()
    item = json.loads(launch_json.dump([run]))["launches"][0]
    assert item["registers"]["per_thread"] is None and item["occupancy"] is None
    (again,) = launch_json.load(launch_json.dump([run]))
    assert again.registers == run.registers and again.occupancy == run.occupancy
    assert launch_json.dump([again]) == launch_json.dump([run])


@pytest.mark.parametrize("engine", ["compiled", "ir"])
def test_a_chosen_engine_refuses_instead(engine):
    with pytest.raises(UnsupportedFeature, match="a list is not in the kernel language"):
        run_reversed(engine=engine)


def test_counting_alone_refuses_as_the_oracle_computes_values():
    with pytest.raises(UnsupportedFeature, match="a list is not in the kernel language"):
        run_reversed(counts_only=True)


@cuda.jit
def float_mask(o, m):
    o[0] = cuda.ballot_sync(m[0], True)


def test_a_mistake_by_numbas_rules_is_refused_on_every_engine():
    for engine in ("auto", "oracle"):
        with pytest.raises(KernelMistake, match="the mask of cuda.ballot_sync is float64"):
            launch(float_mask, 1, 32, (np.zeros(1), np.zeros(1)), Device(H200), engine=engine)


@cuda.jit
def unknown_method(o):
    o[0] = o.cumsum()[0]


def test_what_the_oracle_cannot_run_either_has_the_compilers_message():
    with pytest.raises(UnsupportedFeature, match="the array attribute o.cumsum"):
        unknown_method[1, 1](np.zeros(1))


@cuda.jit
def past_a_view(o):
    [part] = [o[2:]]
    part[cuda.threadIdx.x] = 1


def test_a_mistake_that_the_oracle_finds_is_told_and_leaves_arrays_alone():
    o = np.zeros(4)
    with pytest.raises(OutOfBounds, match=r"thread \(2, 0, 0\).*index 2"):
        past_a_view[1, 3](o)
    assert o.tolist() == [0, 0, 0, 0]


class Refused(Exception):
    pass


@cuda.jit
def raising(x):
    if x[cuda.grid(1)] < 0:
        raise Refused("a negative number")


def test_an_exception_of_the_kernels_own_names_thread_block_and_line():
    raising[2, 2](np.ones(4))
    said = r"test_by_source.py:\d+: Refused, tid=\[1, 0, 0\] ctaid=\[1, 0, 0\]: a negative number$"
    with pytest.raises(Refused, match=said) as e:
        raising[2, 2](np.array([1.0, 1, 1, -1]))
    assert isinstance(e.value, UserError)


@cuda.jit(device=True)
def deeper(n):
    return deeper(n + 1)


@cuda.jit
def without_end(x):
    x[0] = deeper(0)


@cuda.jit
def opening(x):
    with open("/no/such/file"):
        x[0] = 1


@cuda.jit
def given_up(x):
    x[0] = next(iter([]))


@pytest.mark.parametrize(
    ("kernel", "kind", "line"),
    [
        (without_end, RecursionError, deeper.py_func.__code__.co_firstlineno + 2),
        (opening, FileNotFoundError, opening.py_func.__code__.co_firstlineno + 2),
        (given_up, StopIteration, given_up.py_func.__code__.co_firstlineno + 2),
    ],
)
def test_whatever_python_raises_in_a_kernel_names_thread_block_and_line(kernel, kind, line):
    said = rf"test_by_source.py:{line}: {kind.__name__}, tid=\[0, 0, 0\] ctaid=\[0, 0, 0\]: "
    with pytest.raises(UserError, match=said) as e:
        kernel[1, 2](np.ones(4))
    assert isinstance(e.value, kind)


@cuda.jit
def complex_square(o, x):
    i = cuda.grid(1)
    if i < x.size:
        o[i] = x[i] * x[i]


def test_elements_without_a_type_have_values_but_no_requests():
    x = np.array([1 + 2j, 3j], np.complex64)
    o = np.zeros_like(x)
    run = launch(complex_square, 1, 32, (o, x), Device(H200))
    assert o.tolist() == [-3 + 4j, -9]
    assert run["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] is None
    assert run.counters.global_load.requests == 0 and "global_load" in run.not_counted
    assert "global load n/a n/a n/a n/a n/a not counted" in " ".join(text([run]).split())


@cuda.jit
def shared_view(o):
    s = cuda.shared.array((2, 32), np.float32)
    t = cuda.threadIdx.x
    [row] = [s[1]]
    row[t] = t
    cuda.syncthreads()
    o[t] = row[31 - t]


def test_static_shared_memory_is_that_of_the_arrays_it_made():
    o = np.zeros(32, np.float32)
    run = launch(shared_view, 1, 32, (o,), Device(H200))
    assert o.tolist() == list(range(31, -1, -1))
    assert run.static_shared_bytes == 256 and run.shared_buffers == (("s", 256),)
    assert run.counters.shared_store.wavefronts == 1 and run.counters.barriers == 1


def test_a_block_too_large_is_refused_before_anything_runs():
    with pytest.raises(LaunchRefused, match="1,024"):
        reversed_view[1, 2048](np.zeros(4), np.zeros(4))


@cuda.jit
def parts_of_complex(o, x):
    i = cuda.grid(1)
    o[i] = x.real[i] + x.imag[i]
    if i == 0:
        copied = x.copy()
        x[0] = 5
        o[2] = copied[0].real


def test_parts_and_copies_of_complex_arrays_are_numpys():
    x, o = np.array([1 + 2j, 3 + 4j]), np.zeros(3)
    parts_of_complex[1, 2](o, x)
    assert o.tolist() == [3, 7, 1] and x[0] == 5


@cuda.jit
def reshaped(o, x, shape):
    y = x.reshape(shape)
    o[cuda.threadIdx.x] = y[cuda.threadIdx.x, 0]


def test_a_reshape_is_a_view():
    o = np.zeros(3)
    reshaped[1, 3](o, np.arange(12.0), (-1, 4))
    assert o.tolist() == [0, 4, 8]
    with pytest.raises(UnsupportedFeature, match="the array attribute x.reshape"):
        reshaped[1, 3](o, np.arange(12.0), (5, 4))


def test_an_order_of_blocks_that_was_asked_for_is_not_dropped_in_silence():
    run = launch(reversed_view, 2, 32, (np.zeros(64), np.zeros(68)), Device(H200, atomic_order=3))
    assert "blocks ran in order: --atomic-order is the compiler's" in run.notes


@cuda.jit
def shifted(x, y, o):
    np.add(x, y, o)


def test_a_function_of_numpy_goes_over_whole_arrays_in_every_thread():
    o = np.zeros((2, 3), np.float32)
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([10, 20, 30], np.int32)
    run = launch(shifted, 1, 1, (x, y, o), Device(H200))
    assert o.tolist() == [[10, 21, 32], [13, 24, 35]]
    assert run.counters.global_load.lanes == 12 and run.counters.global_store.lanes == 6
    shifted[1, 1](x, np.float32(1), o)
    assert o.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_an_array_of_results_that_does_not_fit_is_refused():
    with pytest.raises(UnsupportedFeature, match="the numpy function add"):
        shifted[1, 1](np.zeros(4), np.zeros(4), np.zeros(3))
