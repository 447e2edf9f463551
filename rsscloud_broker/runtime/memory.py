"""Memory settings of the process, for the garbage collector and the C library's allocator.

``starting`` and ``service`` apply them. The allocator of the GNU C library returns large blocks to
the system at first. But after a large block was freed, it takes blocks of that size from heaps, one
for each thread, that shrink only at their ends. So the contents of topics that came and went would
leave the process large.
"""

from __future__ import annotations

import gc
from ctypes import CDLL
from typing import Final

#: The threshold in bytes.
LARGE: Final = 256 * 1024


def postpone_collections() -> None:
    """Have the garbage collector run rarely, until `freeze_existing_objects`."""
    # A starting broker makes a quarter of a million objects, nearly all of which stay in use: with
    # Python's default, looking for others takes a sixth of the time.
    gc.set_threshold(500_000)


def freeze_existing_objects() -> None:
    """Exclude the objects that exist now from all later garbage collections.

    That takes no time.  To look for garbage before would take 80 ms, and free some 2 MB.
    """
    gc.freeze()
    # When this many more objects were made than freed.  Python's default is about a few requests'
    # worth of objects, all of them still in use.
    gc.set_threshold(10_000)


def return_large_blocks() -> bool:
    """Make the C library return each large block to the system when it is freed.

    :returns: whether the C library supports that.
    """
    try:
        set_option = CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    # -3 is ``M_MMAP_THRESHOLD``: larger blocks are requested from the system one by one.
    return bool(set_option(-3, LARGE))
