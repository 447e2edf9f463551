"""The tests mirror the package, and go from the inside out: codecs first, processes last."""

import os

from hypothesis import settings

# On a busy machine an example may take long without anything being wrong.  What
# is to land is not judged by luck: the same examples each time.  Everywhere else
# each run looks for new ones.
settings.register_profile("rsscloud-broker", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("rsscloud-broker")
