"""Records of the Python oracle: the place of one record, whose fields are loaded and stored apart.

What it models: fields by name or place, arrays and records inside records, and copies of whole records. What
it leaves out: nothing that dsl/frontend/records.py has. Checked by no ncu metric; tests hold it against the
compiled engine.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np

from dsl.oracle.arrays import Tracked


class Record:
    """Stand for a record; `place` is an array of no dimension that holds it."""

    __slots__ = ("place",)
    place: Tracked

    def __init__(self, place: Tracked) -> None:
        object.__setattr__(self, "place", place)

    def _field(self, key: Any) -> Tracked:
        names = self.place.data.dtype.names or ()
        return self.place.column(key if isinstance(key, str) else names[int(key)])

    def _read(self, key: Any, frame: FrameType) -> Any:
        field = self._field(key)
        return field if field.data.ndim else field.load((), frame)

    def _write(self, key: Any, value: Any, frame: FrameType) -> None:
        field = self._field(key)
        if not field.data.ndim:
            field.store((), value, frame)
        elif not isinstance(value, Tracked):
            raise TypeError(f"the field {key!r} is an array and is assigned {value!r}")
        else:
            for index in np.ndindex(field.data.shape):
                field.store(index, value.load(index, frame), frame)

    def __getattr__(self, name: str) -> Any:
        if name not in (self.place.data.dtype.names or ()):
            raise AttributeError(f"a record has no field {name!r}")
        return self._read(name, sys._getframe(1))

    def __setattr__(self, name: str, value: Any) -> None:
        self._write(name, value, sys._getframe(1))

    def __getitem__(self, key: Any) -> Any:
        return self._read(key, sys._getframe(1))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._write(key, value, sys._getframe(1))


def bytes_of(record: Record, frame: FrameType) -> Any:
    """Return a record's contents, each of its bytes loaded."""
    place = record.place
    place.record_bytes(place.address, "load", frame)
    return place.data[()]
