"""The example notebooks run, say what they compute, and are stored without outputs."""

from __future__ import annotations

import ast
import json
import linecache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[str]:
    """Return the text of a notebook's cells of one kind."""
    return ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == kind]


class Notebook:
    """Run the code cells of a notebook as a notebook does: the value of a cell's last line is shown."""

    def __init__(self, path: Path) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.shown: list[Any] = []
        for i, text in enumerate(cells(path, "code")):
            self._run(text, f"<{path.stem} cell {i}>")

    def _run(self, text: str, name: str) -> None:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        body = ast.parse(text, name).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), name, "exec"), self.names)
        value = eval(compile(ast.Expression(last.value), name, "eval"), self.names) if last else None
        if value is not None:
            picture = getattr(value, "_repr_png_", None)
            self.shown.append((picture or value._repr_html_)())


def run(name: str) -> Notebook:
    """Run a notebook by its name."""
    return Notebook(ROOT / f"examples/notebooks/{name}.ipynb")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    made = json.loads(path.read_text())
    code = [c for c in made["cells"] if c["cell_type"] == "code"]
    assert code and all(c["outputs"] == [] and c["execution_count"] is None for c in code)
    assert set(made["metadata"]["kernelspec"]) == {"display_name", "language", "name"}
    assert cells(path, "markdown")[0].startswith("# ")


def test_there_is_one_for_each_topic():
    assert [path.stem for path in NOTEBOOKS] == [
        "bank_conflicts", "coalescing", "decode_splits", "flash_attention", "occupancy"]


@pytest.mark.slow
def test_coalescing_takes_a_sector_more_for_each_lane_that_stands_apart():
    book = run("coalescing")
    assert book.names["sectors"] == [4, 8, 16, 32, 32]
    assert "Uncoalesced Global Loads" in book.shown[0] and book.shown[1].startswith(b"\x89PNG")
    # 4,096 lanes, 32 bytes of DRAM each
    assert book.names["p"].reports[3]["gpusim__dram_data_read_bytes.sum"] == 131_072


@pytest.mark.slow
def test_bank_conflicts_are_32_wavefronts_a_request_and_one_with_a_padded_row():
    book = run("bank_conflicts")
    assert book.names["wavefronts"] == [32 * 32, 32]
    assert "pad the row to 33 words" in book.shown[2] and len(book.shown) == 3


@pytest.mark.slow
def test_standard_attention_moves_the_matrices_that_flash_attention_never_has():
    book = run("flash_attention")
    moved, matrix = book.names["moved"], book.names["matrix_bytes"]
    assert matrix == 4_194_304
    # Flash: Q once and K, V for each of 16 tiles of queries; O and L written.
    assert moved["flash"]["L1"] == 4 * 1024 * 64 * (2 + 2 * 16) + 4 * 1024
    assert moved["standard"]["L1"] > 4 * matrix > moved["flash"]["DRAM"]
    assert "3 launches" in book.shown[0] and len(book.shown) == 5


@pytest.mark.slow
def test_decoding_reads_keys_and_values_once_whatever_the_splits():
    book = run("decode_splits")
    for splits, (split, combine) in book.names["runs"].items():
        # K and V: 8 heads x 4,096 keys x 64 floats each; q: 8 x 64 floats
        assert split["gpusim__dram_data_read_bytes.sum"] == 2 * 8 * 4096 * 64 * 4 + 8 * 64 * 4
        assert split["gpusim__stored_bytes.sum"] == 8 * splits * (64 + 2) * 4
        assert (split.grid[0] * split.grid[1] * split.grid[2], combine.kernel) == (8 * splits, "combine")
    assert len(book.shown) == 4


@pytest.mark.slow
def test_occupancy_follows_registers_and_shared_memory():
    book = run("occupancy")
    assert book.names["blocks"] == {32: 8, 64: 4, 128: 2, 255: 1}
    assert book.names["report"].occupancy.blocks_per_sm == 6
    assert "Small Grid" not in book.shown[0] and len(book.shown) == 2


@pytest.fixture
def execute(monkeypatch):
    """Return a function that runs a notebook in a Jupyter kernel and returns it with its outputs."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (the extra notebook)")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (the extra notebook)")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return lambda book: nbclient.NotebookClient(book, timeout=300, allow_errors=True).execute()


@pytest.mark.full
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_jupyters_kernel(path, execute):
    import nbformat

    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    execute(book)
    assert not [o for c in book.cells for o in c.get("outputs", ()) if o.output_type == "error"]


@pytest.mark.full
def test_a_cell_of_the_magic_shows_its_launches_and_a_figure_shows_itself(execute):
    from nbformat import v4

    kernel = "from dsl import cuda\n@cuda.jit\ndef one(x):\n    x[cuda.grid(1)] = 1\n"
    texts = ["%load_ext gpusim\nimport gpusim, numpy as np\nx = np.zeros(64, np.float32)\n" + kernel,
             "%%gpusim a100\none[2, 32](x)\none[1, 32](x)", "%%gpusim warm\none[2, 0](x)",
             "with gpusim.profile() as p:\n    one[2, 32](x)\np.reports[0].plot.memory_chart()"]  # fmt: skip
    book = v4.new_notebook(cells=[v4.new_code_cell(text) for text in texts])
    execute(book)
    outputs = [cell.outputs for cell in book.cells]
    assert outputs[0] == []
    assert [o.output_type for o in outputs[1]] == ["display_data"]
    html = outputs[1][0].data["text/html"]
    assert "2 launches" in html and "NVIDIA A100" in html
    assert [o.ename for o in outputs[2]] == ["LaunchRefused"]
    assert "image/png" in outputs[3][0].data
