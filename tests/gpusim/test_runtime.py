"""The compiled functions' disk cache: its key, its place, and that a user's own numba code is left alone."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from gpusim import runtime

REPOSITORY = Path(__file__).parents[2]


def python(code, **environment):
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def write(directory, name, text):
    (directory / name).write_text(text)


def test_the_key_changes_with_a_source_that_is_compiled(tmp_path):
    write(tmp_path, "callee.py", "from gpusim.runtime import jit\nA = 1\n")
    write(tmp_path, "trace.py", "SHIFT = 4\n")
    before = runtime.cache_key(runtime.source_files(tmp_path))
    assert runtime.cache_key(runtime.source_files(tmp_path)) == before
    write(tmp_path, "callee.py", "from gpusim.runtime import jit\nA = 2\n")
    after = runtime.cache_key(runtime.source_files(tmp_path))
    assert after != before
    write(tmp_path, "trace.py", "SHIFT = 5\n")
    assert runtime.cache_key(runtime.source_files(tmp_path)) != after


def test_the_key_does_not_change_with_a_source_that_is_not(tmp_path):
    write(tmp_path, "cache.py", "from gpusim.runtime import jit\n")
    before = runtime.cache_key(runtime.source_files(tmp_path))
    write(tmp_path, "report.py", "print('a table')\n")
    assert runtime.cache_key(runtime.source_files(tmp_path)) == before


def test_the_sources_are_the_modules_with_compiled_functions():
    names = {file.name for file in runtime.source_files()}
    assert {
        "coalescer.py",
        "shared.py",
        "atomics.py",
        "cache.py",
        "l2.py",
        "hierarchy.py",
        "trace.py",
        "runtime.py",
    } <= names
    assert "counters.py" not in names


def test_the_cache_is_in_xdg_cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert runtime.cache_home() == tmp_path / "gpusim"
    assert (tmp_path / "gpusim").is_dir()


def test_without_a_writable_home_the_cache_is_temporary(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no directory can be made below a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(runtime.tempfile, "gettempdir", lambda: str(tmp_path))
    assert runtime.cache_home().parent == tmp_path


def test_removes_directories_of_other_keys_after_30_days_and_not_before(tmp_path):
    day = 24 * 3600
    for name, age in (
        ("numba-old", 31 * day),
        ("numba-young", 29 * day),
        ("numba-mine", 31 * day),
        ("notes", 99 * day),
    ):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    runtime.remove_old(tmp_path, "numba-mine", 1e9)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes", "numba-mine", "numba-young"]


def test_leaves_numbas_own_cache_setting_as_it_was():
    before = numba.config.CACHE_DIR
    with pytest.raises(RuntimeError), runtime._own_cache():
        assert str(runtime.cache_directory()) == numba.config.CACHE_DIR
        raise RuntimeError
    assert before == numba.config.CACHE_DIR


def test_import_compiles_nothing_and_the_first_call_fills_the_cache(tmp_path):
    count = "sum(1 for _ in pathlib.Path(os.environ['XDG_CACHE_HOME']).rglob('*.nb*'))"
    code = (
        "import os, pathlib, numpy as np\nfrom gpusim import hierarchy, coalescer, atomics, shared\n"
        f"before = {count}\nshared.ideal_wavefronts(np.uint32(1), 8)\nprint(before, {count} > 0)"
    )
    assert python(code, XDG_CACHE_HOME=str(tmp_path)) == "0 True"


def test_a_second_process_reads_the_code_from_disk(tmp_path):
    code = (
        "import numpy as np\nfrom gpusim import shared\nf = shared.ideal_wavefronts\nf(np.uint32(1), 8)\n"
        "print(sum(f.stats.cache_hits.values()), sum(f.stats.cache_misses.values()))"
    )
    assert [python(code, XDG_CACHE_HOME=str(tmp_path)) for _ in range(2)] == ["0 1", "1 0"]


def test_a_compiled_function_counts_bits():
    @numba.njit
    def counts(x):
        return runtime.popcount(x), runtime.trailing_zeros(x)

    assert [counts(x) for x in (1, 0b1011000, 2**62)] == [(1, 0), (3, 3), (1, 62)]
