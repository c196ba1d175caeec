"""Errors that a user can mend: their message is one line that says what is wrong, why, and what to do."""

from __future__ import annotations

import errno

ADVICE = {
    errno.EACCES: "make it accessible or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOENT: "check the path",
    errno.EEXIST: "choose another place",
    errno.ENOTDIR: "choose another place",
    errno.ENOSPC: "make room and start again; what was stored is kept",
}
"""What to do when the operating system refuses."""


class CairnError(Exception):
    """Base of the errors of every room that are told to people as they are, without a traceback."""

    exit_code = 1
    """Of the program that ends with this error; 2 when starting it again cannot help."""


def mendable(error: BaseException) -> CairnError | None:
    """What to tell the user of this error; None for one that only a programmer can mend.

    A group, as a TaskGroup raises it, counts when all that is in it does; its first error is told. An OSError
    counts when it names a file or says that the disk is full.
    """
    if isinstance(error, BaseExceptionGroup):
        found = [mendable(inner) for inner in error.exceptions]
        return found[0] if all(found) else None
    if isinstance(error, CairnError):
        return error
    if isinstance(error, OSError) and (error.filename is not None or error.errno == errno.ENOSPC):
        where = f"{error.filename}: " if error.filename is not None else ""
        advice = ADVICE.get(error.errno or 0)
        return CairnError(f"{where}{error.strerror}" + (f"; {advice}" if advice else ""))
    return None
