"""The tests mirror the package, and go from the inside out: codecs first, processes last."""

from hypothesis import settings

# On a busy machine an example may take long without anything being wrong.
settings.register_profile("rsscloud-broker", deadline=None)
settings.load_profile("rsscloud-broker")
