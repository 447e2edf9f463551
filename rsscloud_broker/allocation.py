"""Memory that is given back: large blocks are returned to the system once they are freed.

The allocator of the GNU C library begins like that.  But after a large block was freed it
takes blocks of that size from its heaps, one for each thread, which shrink only at their ends:
contents of topics that came and went would leave the process large.
"""

from __future__ import annotations

from ctypes import CDLL
from typing import Final

#: The number of this option: the size of blocks that are asked of the system one by one.
_MMAP_THRESHOLD: Final = -3

#: Bytes of a block that is large.
LARGE: Final = 256 * 1024


def return_large_blocks() -> bool:
    """Have large blocks returned, if the C library can do that.

    :returns: whether it can.
    """
    try:
        set_option = CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(set_option(_MMAP_THRESHOLD, LARGE))
