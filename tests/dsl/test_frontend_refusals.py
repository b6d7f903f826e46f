"""What is outside the language is refused with the file, the line, what it is and what to write instead."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from typing import Any

import numba.cuda
import numpy as np
import pytest
from numba import float32, literal_unroll
from numba.cuda import atomic, ballot_sync, popc, shfl_down_sync, syncthreads_count

from dsl import cuda
from dsl.frontend.compile import compile_function
from dsl.intrinsics.device_name import DeviceName
from dsl.types import ArgType
from dsl.warpir import ir
from gpusim.errors import UnsupportedFeature, UserError
from tests.dsl.frontend_support import agree, compiled, interpret

A1, A2 = ArgType("f32", 1), ArgType("f32", 2)


def with_try(o):
    try:
        o[0] = 1
    except ValueError:
        pass


def with_with(o):
    with o:
        pass


def with_list(o):
    x = [1, 2]
    o[0] = x[0]


def with_comprehension(o):
    o[0] = max([x + 1 for x in (1, 2)])


def with_generator(o):
    o[0] = max(x for x in (1, 2))


def with_yield(o):
    yield o[0]


def with_class(o):
    class Inner:
        pass


def with_inner_function(o):
    def inner():
        return 1

    o[0] = inner()


def with_lambda(o):
    f = lambda x: x  # noqa: E731
    o[0] = f(1)


def with_return(o):
    return o[0]


def with_string(o):
    o[0] = "a"


def with_dict(o):
    o[0] = {1: 2}[1]


def with_star(o):
    o[0] = max(*(1, 2))


def with_print(o):
    print(o[0])


def with_constant_memory(o):
    c = cuda.const.array_like(o)
    o[0] = c[0]


def with_cooperative_groups(o):
    cuda.cg.this_grid().sync()


def with_fp16(o):
    o[0] = cuda.fp16.hadd2(o[0], o[1])


def with_short_vector(o):
    v = numba.cuda.int32x2(1)
    o[0] = v.x


def with_unroll(o):
    for x in literal_unroll(o):
        o[0] += x


def with_unknown_name(o):
    o[0] = cuda.shuffle(o[0])


def with_misspelt_name(o):
    o[0] = cuda.threadidx.x


def with_late_float(o):
    cuda.nanosleep(1.5)


def with_bare_threadidx(o):
    o[0] = cuda.threadIdx


def with_unknown_axis(o):
    o[0] = cuda.threadIdx.w


def with_numpy(o):
    o[0] = np.exp(3)


def with_method(o):
    o[0] = o.sum()


def with_undefined(o):
    o[0] = undefined_name  # noqa: F821


def with_unassigned(o):
    o[0] = x  # noqa: F821
    x = 1  # noqa: F841


def with_slice(o):
    o[0:2] = 1


def with_for_else(o):
    for i in range(3):
        o[i] = 1
    else:
        o[0] = 2


def with_array_loop(o):
    square = cuda.local.array((2, 2), float32)
    for x in square:
        o[0] = x


def with_float_index(o):
    o[1.5] = 1


def with_float_range(o):
    for i in range(2.5):
        o[i] = 1


def with_zero_step(o):
    for i in range(0, 4, 0):
        o[i] = 1


def with_runtime_shape(o):
    s = cuda.shared.array(o.size, float32)
    s[0] = 1


def with_bad_dtype(o):
    s = cuda.shared.array(4, np.complex64)
    s[0] = 1


def with_float_bits(o):
    o[0] = o[0] & 1


def with_matmul(o):
    o[0] = o @ o


def with_in(o):
    o[0] = 1 in (1, 2)


def with_walrus(o):
    if (x := o[0]) > 1:
        o[0] = x


def with_array_value(o):
    o[0] = o


def with_tuple_index(o):
    o[0] = (1, 2)[int(o[0])]


def with_wrong_arity(o):
    o[0] = helper(1, 2, 3)


def with_missing_return(o):
    o[0] = half_returns(o[0])


def with_recursion(o):
    o[0] = recursive(3)


def with_two_meanings(o):
    s = cuda.shared.array(4, float32)
    if o[0] > 0:
        s = cuda.shared.array(4, float32)
    s[0] = 1


def with_module_constant(o):
    o[0] = math.no_such_thing


def with_assert(o):
    assert o[0] > 0


def with_attribute_store(o):
    o.x = 1


def with_global(o):
    global CHANGED
    CHANGED = 1


def helper(a, b):
    return a + b


def half_returns(x):
    if x > 0:
        return x


def recursive(n):
    return n * recursive(n - 1)


REFUSED = {
    with_try: "try is not in the kernel language; test the condition",
    with_with: "with is not in",
    with_list: "a list is not in the kernel language; use a tuple or cuda.local.array",
    with_comprehension: "a list comprehension is not in",
    with_generator: "a generator expression is not in",
    with_yield: "yield is not in",
    with_class: "a class is not in",
    with_inner_function: "a function inside a kernel is not in the kernel language; define the device",
    with_lambda: "a lambda is not in",
    with_return: "a kernel returns a value; store the result in an array",
    with_string: "the constant 'a' is not in",
    with_dict: "a dict is not in",
    with_star: "* or ** in a call is not in the kernel language; write the arguments out",
    with_print: "print is not compiled; leave it to the Python oracle (--engine auto), or store the values",
    with_constant_memory: "cuda.const.array_like of the array 'o'; give a numpy array that is a global",
    with_cooperative_groups: "cuda.cg is not in the kernel language yet; end the kernel there",
    with_fp16: "cuda.fp16.hadd2 is not in the kernel language; it has fp16.habs, fp16.hadd, fp16.hceil",
    with_short_vector: "cuda.int32x2 of 1 numbers; give 2",
    with_unroll: "literal_unroll of the array 'o'; give a tuple",
    with_unknown_name: "cuda.shuffle is not in the kernel language; it has activemask, all_sync, any_sync, ",
    with_misspelt_name: "cuda.threadidx is not in the kernel language; did you mean threadIdx or ",
    with_late_float: "the ns of cuda.nanosleep is float64, not an integer",
    with_bare_threadidx: "'o' is assigned cuda.threadIdx",
    with_unknown_axis: "cuda.threadIdx.w is not in",
    with_numpy: "the numpy function exp; use math.exp",
    with_method: "the array attribute o.sum",
    with_undefined: "the name 'undefined_name' is not defined",
    with_unassigned: "the variable 'x' is read before it is assigned",
    with_slice: "an assignment to a slice of 'o'; assign one element at a time",
    with_for_else: "else after a loop is not in",
    with_array_loop: "a for loop over the array 'square'; loop over range(...) and index, over an array of",
    with_float_index: "index 0 of 'o' is a float64; use an integer",
    with_float_range: "range() of a float",
    with_zero_step: "range() with step 0",
    with_runtime_shape: "the shape of cuda.shared.array is not known when the kernel is compiled",
    with_bad_dtype: "the dtype of cuda.shared.array is complex64; it has to be one of",
    with_float_bits: "& of a float",
    with_matmul: "the operator @ is not in",
    with_in: "`in` is not in",
    with_walrus: "an assignment expression (:=) is not in",
    with_array_value: "'o' is assigned the array 'o'",
    with_tuple_index: "a tuple is indexed by something that is not known",
    with_wrong_arity: "helper is called with the wrong arguments; it takes a, b",
    with_missing_return: "half_returns returns a value on some paths only",
    with_recursion: "recursive calls itself; write the recursion as a loop",
    with_two_meanings: "'s' stands for the array 's' and for the array 's_1'",
    with_module_constant: "module math has no attribute 'no_such_thing'",
    with_assert: "assert is not in",
    with_attribute_store: "an assignment to o.x",
    with_global: "global is not in",
}


def with_numpy_sum(o):
    o[0] = np.sum(o)


def with_indexed_number(o):
    n = 3
    o[0] = n[0]


REFUSED |= {
    with_numpy_sum: "the numpy function sum; use a loop: numpy works on whole arrays",  # math has no sum
    with_indexed_number: "an int64 cannot be indexed; index tuples, and arrays",
}


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda k: k.__name__)
def test_refused_with_line_reason_and_advice(kernel: Any) -> None:
    with pytest.raises(UnsupportedFeature) as error:
        compiled(kernel, A1)
    text = str(error.value)
    place = re.match(re.escape(__file__) + r":(\d+): in (\w+): ", text)
    assert place is not None and place[2] == kernel.__name__
    assert REFUSED[kernel] in text and "; " in text


def one_index(a):
    a[0] = 1


def two_indices(a):
    a[0, 1] = 1


def test_the_number_of_indices_must_be_the_rank() -> None:
    with pytest.raises(
        UnsupportedFeature,
        match=r"'a' has 2 dimensions and gets 1 index; index it with a tuple of 2: a\[i, j\]",
    ):
        compiled(one_index, A2)
    with pytest.raises(
        UnsupportedFeature, match=r"'a' has 1 dimension and gets 2 indices; index it as a\[i\]"
    ):
        compiled(two_indices, A1)
    assert compiled(one_index, A1) and compiled(two_indices, A2)


def test_the_line_is_that_of_the_fault_inside_a_device_function() -> None:
    def kernel(o):
        o[0] = faulty(o[0])

    with pytest.raises(
        UnsupportedFeature, match=f"{re.escape(__file__)}:{faulty.__code__.co_firstlineno + 2}: in kernel: "
    ):
        compiled(kernel, A1)


def faulty(x):
    y = x + 1
    return y.real


def test_a_wrong_number_of_arguments_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match=r"2 arguments for 1 parameters \(a\)"):
        compile_function(one_index, (A1, A1))


def test_a_kernel_without_source_text_is_refused() -> None:
    scope: dict[str, Any] = {}
    exec("def typed_in(o):\n    o[0] = 1\n", scope)
    with pytest.raises(UnsupportedFeature, match="typed_in: its source text is not available"):
        compile_function(scope["typed_in"], (A1,))
    with pytest.raises(UnsupportedFeature, match="a lambda is not in the kernel language"):
        compile_function(lambda o: None, (A1,))


def test_device_names_on_the_host_are_a_users_mistake() -> None:
    with pytest.raises(UserError, match="cuda.grid exists only inside a kernel"):
        cuda.grid(1)
    with pytest.raises(UserError, match=r"cuda\.shared\.array exists only inside a kernel"):
        cuda.shared.array(4, float32)
    assert isinstance(cuda.atomic.add, DeviceName)


def numba_names(o):
    i = numba.cuda.grid(1)
    numba.cuda.syncthreads()
    if i < o.size:
        o[i] = numba.float32(numba.cuda.threadIdx.x)


def test_names_of_numba_cuda_mean_the_same() -> None:
    assert len(compiled(numba_names, A1).blocks) == 4


def imported_names(o):
    t = numba.cuda.laneid
    n = syncthreads_count(t < 5)
    o[t] = shfl_down_sync(0xFFFFFFFF, t, 1) + 100 * popc(ballot_sync(0xFFFFFFFF, t < 3))
    atomic.max(o, 0, 10 * n)


def test_names_imported_from_numba_cuda_one_by_one_mean_the_same() -> None:
    assert list(interpret(imported_names, 1, 32, np.zeros(32, np.int64))[0][[0, 1, 31]]) == [301, 302, 331]


def sleeps(o):
    cuda.nanosleep(cuda.threadIdx.x)
    cuda.threadfence()
    cuda.threadfence_block()
    cuda.threadfence_system()


def test_fences_and_nanosleep_are_no_instructions() -> None:
    (block,) = compiled(sleeps, A1).blocks
    assert not block.instrs and isinstance(block.terminator, ir.Ret)


@cuda.jit(device=True)
def twice(x):
    return 2 * x


@cuda.jit("void(float32[:])", max_registers=64)
def with_signature(o):
    o[cuda.threadIdx.x] = twice(cuda.threadIdx.x)


def test_jit_takes_options_signatures_and_device_functions() -> None:
    assert list(agree(with_signature, 1, 4, np.zeros(4, np.float32))[0]) == [0, 2, 4, 6]


def test_a_file_edited_after_its_import_still_gives_the_kernel_that_was_imported(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    path.write_text("from dsl import cuda\n\n@cuda.jit\ndef k(o):\n    o[0] = 3\n")
    spec = importlib.util.spec_from_file_location("edited", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_text("# one line more\n" + path.read_text().replace("3", "4"))
    assert interpret(module.k, 1, 1, np.zeros(1, np.float32))[0][0] == 3


def test_a_plain_function_whose_file_has_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "moved.py"
    path.write_text("def k(o):\n    o[0] = 3\n")
    scope: dict[str, Any] = {}
    exec(compile("\n" + path.read_text(), str(path), "exec"), scope)
    with pytest.raises(UnsupportedFeature, match="has the file changed since it was imported"):
        compile_function(scope["k"], (A1,))
