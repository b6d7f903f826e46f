"""Output files, written whole or not at all.

A text goes to a temporary file in the same directory, which then takes the place of the target in one step:
whoever reads the target sees the old content or the new. What it leaves out: making directories.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from gpusim.errors import CannotWrite


def check_writable(path: Path) -> None:
    """Raise CannotWrite where `write_whole` would, and leave nothing behind; for a check before long work."""
    target = _target(path)
    if _is_device(target):
        return
    handle, name = _temporary(path, target)
    os.close(handle)
    os.unlink(name)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one step (text as UTF-8); raise CannotWrite and leave what was there where it cannot be
    done.

    A device such as /dev/stdout is written to directly. A new file gets the usual permissions, an old one
    keeps its own.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    target = _target(path)
    try:
        if _is_device(target):
            target.write_bytes(data)
            return
        handle, name = _temporary(path, target)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(name, _mode(target))
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise _refusal(path, error) from None


def _target(path: Path) -> Path:
    """Return what a link points to, so that the link itself stays."""
    return Path(os.path.realpath(path))


def _is_device(target: Path) -> bool:
    return target.exists() and not target.is_file() and not target.is_dir()


def _temporary(path: Path, target: Path) -> tuple[int, str]:
    if target.is_dir():
        raise CannotWrite(f"cannot write {path}: it is a directory. Name a file in it.")
    if not target.parent.is_dir():
        raise CannotWrite(f"cannot write {path}: there is no directory {path.parent}. Make it first.")
    if target.exists() and not os.access(target, os.W_OK):
        raise CannotWrite(f"cannot write {path}: the file is read-only. Name another file.")
    try:
        return tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".part")
    except OSError as error:
        raise _refusal(path, error) from None


def _mode(target: Path) -> int:
    """Return the permissions of the file there is, or those of a new file."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _refusal(path: Path, error: OSError) -> CannotWrite:
    return CannotWrite(
        f"cannot write {path}: {error.strerror or error}. Name a file in a directory you can write to.")
