"""A lock on an open file. The kernel takes it back when its process ends, however that dies."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30  # a locked byte cannot be read there: lock one that no text reaches

    def try_lock(file: int) -> bool:
        """Lock it; False where another process has."""
        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def try_lock(file: int) -> bool:
        """Lock it; False where another process has."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
