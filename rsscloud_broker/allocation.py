"""How the process deals with memory: what is collected as garbage, and what is given back.

The allocator of the GNU C library returns large blocks to the system at first.  But after a
large block was freed it takes blocks of that size from its heaps, one for each thread, which
shrink only at their ends: contents of topics that came and went would leave the process large.
"""

from __future__ import annotations

import gc
from ctypes import CDLL
from typing import Final

#: Objects that are made, beyond those that are given up, before garbage is collected.
#: Python's own number is about a few requests' worth, all of them still in use.
GARBAGE: Final = 10_000

#: The number of this option: the size of blocks that are asked of the system one by one.
_MMAP_THRESHOLD: Final = -3

#: Bytes of a block that is large.
LARGE: Final = 256 * 1024


def what_is_there_stays() -> None:
    """Have no garbage looked for among what is there now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


def return_large_blocks() -> bool:
    """Have large blocks returned, if the C library can do that.

    :returns: whether it can.
    """
    try:
        set_option = CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(set_option(_MMAP_THRESHOLD, LARGE))
