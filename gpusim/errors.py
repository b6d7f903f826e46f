"""The mistakes a user can make, one exception class each.

The message says what, where, the limit and what to do. The command line prints `str(error)` alone and exits
with status 2; nothing here is ever shown with a traceback.
"""

from __future__ import annotations


class UserError(Exception):
    """Be the base of every mistake of a user; its text is the whole message."""


class OutOfBounds(UserError):
    """A thread reads or writes outside an array."""


class DivisionByZero(UserError, ZeroDivisionError, FloatingPointError):
    """A thread of a kernel made with debug=True divides by zero."""


class Misaligned(UserError):
    """A thread reads or writes a vector at an address that is no multiple of its bytes."""


class BarrierDivergence(UserError):
    """Some threads of a block reach a barrier that others do not."""


class WarpDivergence(UserError):
    """The lanes that run a warp operation are not the lanes that its mask names."""


class EndlessLoop(UserError):
    """A warp took more than --max-steps steps."""


class KernelFault(UserError):
    """A thread of a kernel that runs as Python source does what Python has no answer to, or raises.

    by_kernel: a line of the kernel itself made it: a raise, an assert, an index past a tuple.
    """

    by_kernel = False


class PendingCopy(UserError):
    """A thread touches shared memory that an asynchronous copy may still be filling."""


class LaunchRefused(UserError):
    """A launch that no GPU would accept: too many threads, too much shared memory, an empty grid."""


class WrongValue(LaunchRefused, ValueError):
    """A launch with a value that numba refuses by a ValueError."""


class WrongType(LaunchRefused, TypeError):
    """A launch with a value of a type that numba refuses by a TypeError."""


class NoSuchOverload(WrongType):
    """Arguments that none of a kernel's signatures fits."""


class AlreadySpecialised(LaunchRefused, RuntimeError):
    """A kernel that is to be specialised a second time."""


class UnsupportedFeature(UserError):
    """The kernel uses something the language does not have."""


class KernelMistake(UnsupportedFeature):
    """The kernel is wrong by numba's rules too; no engine runs it."""


class UnknownName(UserError):
    """An unknown kernel, GPU, option, dtype, section or metric."""


class BadOption(UserError):
    """An option whose value the kernel or the command cannot take."""


class DataDependent(UserError):
    """--counts-only of a kernel whose branches or addresses depend on data."""


class CannotWrite(UserError):
    """An output file that cannot be written."""


def reason(error: Exception) -> str:
    """Return why a file was not read, without errno's number: "no such file or directory"."""
    text = error.strerror if isinstance(error, OSError) else None
    return text[0].lower() + text[1:] if text else str(error)
