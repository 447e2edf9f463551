"""What twistd loads for ``twistd rsscloud-broker``: it loads the broker, and saves time meanwhile.

Most of a start is the import of ``tap``, and so of everything.  The garbage collector has to be
told before that.
"""

from rsscloud_broker.runtime import memory

memory.postpone_collections()

from rsscloud_broker.composition.server import Options, makeService  # noqa: E402 # that is what takes the time

__all__ = ["Options", "makeService"]
