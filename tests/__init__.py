"""The tests mirror the package, and go from the inside out: codecs first, processes last."""

import gc
import os
from pathlib import Path

from hypothesis import settings

from tests.slowest import record

_TIMES = float(os.environ.get("EXAMPLES", "1"))


def examples(number: int) -> int:
    """How many examples a test makes up: the number that is usual for it, or a multiple of that.

    ``make test`` tries fewer of them, and ``make test EXAMPLES=20`` 20 times as many.
    """
    return max(1, round(number * _TIMES))


# On a busy machine an example may take long without anything being wrong.  What
# is to land is not judged by luck: the same examples each time.  Everywhere else
# each run looks for new ones.
settings.register_profile(
    "rsscloud-broker",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    max_examples=examples(50),
)
settings.load_profile("rsscloud-broker")

# With all modules of the broker and its tests in memory, searching for garbage takes a tenth of the
# time: search more rarely.
gc.set_threshold(5_000, 20, 20)

# make has each process of a run write down when its tests began: see tests/slowest.py.
if directory := os.environ.get("TEST_TIMES"):
    record(Path(directory))
