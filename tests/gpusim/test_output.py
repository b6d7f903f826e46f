"""Output files: written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpusim.errors import CannotWrite
from gpusim.output import check_writable, write_whole


def test_a_file_is_written_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    write_whole(path, "größer\n")
    assert path.read_bytes() == "größer\n".encode()
    write_whole(path, b"\x00\x01")
    assert path.read_bytes() == b"\x00\x01"
    assert os.listdir(tmp_path) == ["report.txt"]


def test_a_write_that_fails_leaves_the_old_file_and_no_part(tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.txt"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CannotWrite, match="cannot write .*report.txt: No space left on device"):
        write_whole(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["report.txt"]


def test_an_interrupt_leaves_the_old_file_and_no_part(tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.txt"
    path.write_text("old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["report.txt"]


@pytest.mark.parametrize("act", [check_writable, lambda path: write_whole(path, "x")], ids=["check", "write"])
def test_a_directory_that_is_missing_and_a_path_that_is_a_directory_are_refused(tmp_path: Path, act) -> None:
    with pytest.raises(CannotWrite, match="there is no directory .*none. Make it first"):
        act(tmp_path / "none" / "report.txt")
    with pytest.raises(CannotWrite, match="it is a directory"):
        act(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "report.txt")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_the_right_to_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CannotWrite, match="Permission denied"):
            check_writable(tmp_path / "report.txt")
    finally:
        tmp_path.chmod(0o700)


def test_a_file_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="there is no directory"):
        check_writable(tmp_path / "file" / "report.txt")


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions and links")
def test_a_new_file_has_the_usual_permissions_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("")
    old.chmod(0o640)
    before = os.umask(0o022)
    try:
        write_whole(new, "x")
        write_whole(old, "x")
    finally:
        os.umask(before)
    assert (new.stat().st_mode & 0o777, old.stat().st_mode & 0o777) == (0o644, 0o640)


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions and links")
def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    write_whole(link, "x")
    assert link.is_symlink() and target.read_text() == "x"


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs /dev/null")
def test_a_device_is_written_to_and_not_replaced() -> None:
    check_writable(Path("/dev/null"))
    write_whole(Path("/dev/null"), "x")
    assert not os.path.isfile("/dev/null")
