"""What a notebook shows: reports as HTML, and the cell magic with IPython's shell stood in for."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

import gpusim
from gpusim.errors import BadOption
from gpusim.notebook import asked
from gpusim.session import current


class Shell:
    """Stand in for IPython's shell: a cell is a name of a launch to record, or "fail"."""

    def __init__(self, launch):
        self.launch, self.magics, self.session = launch, {}, None

    def register_magic_function(self, function, kind, name):
        self.magics[kind, name] = function

    def run_cell(self, cell):
        self.session = current()
        for word in cell.split():
            if word == "fail":
                return SimpleNamespace(success=False)
            current().record(self.launch)
        return SimpleNamespace(success=True)


@pytest.fixture
def shown(monkeypatch):
    """Return what a notebook was asked to display."""
    found, display = [], ModuleType("IPython.display")
    display.display = found.append
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


def test_a_cell_of_the_magic_shows_the_reports_of_its_launches(make_launch, shown):
    shell = Shell(make_launch())
    gpusim.load_ipython_extension(shell)
    shell.magics["cell", "gpusim"](" a100 warm", "k k")
    assert (shell.session.arch.name, shell.session.l2) == ("a100", "warm")
    assert shown == [[make_launch(), make_launch()]] and current() is not shell.session
    assert "2 launches" in shown[0]._repr_html_() == shell.session._repr_html_()


def test_launches_before_a_failure_are_shown_and_a_failure_alone_shows_nothing(make_launch, shown):
    shell = Shell(make_launch())
    gpusim.load_ipython_extension(shell)
    shell.magics["cell", "gpusim"]("", "fail")
    assert shown == []
    shell.magics["cell", "gpusim"]("", "k fail k")
    assert shown == [[make_launch()]]


@pytest.mark.parametrize(("line", "found"), [("", ("h200", "cold")), (" h100", ("h100", "cold")),
                                             ("warm", ("h200", "warm")), ("warm a100", ("a100", "warm"))])
def test_the_line_names_a_gpu_and_the_caches_in_any_order(line, found):
    assert asked(line) == found


@pytest.mark.parametrize("line", ["h100 a100", "h100 warm cold", "h100 warm x"])
def test_a_line_with_a_word_too_many_is_refused(line):
    with pytest.raises(BadOption, match="takes a GPU and cold or warm"):
        asked(line)


def test_a_launch_shows_itself(make_launch):
    assert "FP32 FLOPs" in make_launch()._repr_html_()


def test_gpusim_has_no_other_names():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gpusim.nothing
