"""Simplefeed: a log of entries that never change, as a chain of Atom documents; and its follower.

A push reaches those who listen at that moment.  Others catch up by a Simplefeed, completely and in
order, and the server need not remember them.  The newest entries are in the *recent document*, at a
URL that everybody knows.  It links to the document before it, that one to the one before, and so
on.  Documents before the recent one are *archived* and never change (RFC 4287, RFC 5005).

This package needs no broker.  A publisher keeps a log (``log``, ``feeds``); a reader uses a
``follower``.
"""
