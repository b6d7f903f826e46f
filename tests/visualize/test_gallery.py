"""The gallery shows a picture of every kind, small enough for a page, each with the command that draws it."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path

import cli

ROOT = Path(__file__).resolve().parents[2]


def shown():
    spec = importlib.util.spec_from_file_location("refresh_gallery", ROOT / "docs/refresh_gallery.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.commands((ROOT / "docs/gallery.md").read_text())


def test_every_kind_is_shown_once_and_an_animation_of_one_kernel_and_of_two():
    assert sorted(kind for _, kind, _ in shown()) == sorted([*cli.PICTURES, "animate", "animate"])


def test_every_picture_is_there_and_small():
    text = (ROOT / "docs/gallery.md").read_text()
    for _, _, file in shown():
        assert f"]({file.removeprefix('docs/')})" in text
        most = 1_500_000 if file.endswith(".gif") else 60_000
        assert 1_000 < (ROOT / file).stat().st_size <= most


def test_every_command_is_one_that_the_command_line_takes():
    for command, *_ in shown():
        _, _, name, *words = shlex.split(command)
        assert cli.cli.commands[name].make_context(name, words, resilient_parsing=False).params["out"]
