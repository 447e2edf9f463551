"""Simplefeed: a log of entries that never change, as a chain of Atom documents; and its follower.

A push reaches those who listen at that moment.  Others catch up by a Simplefeed, completely and in
order, and the server need not remember them.  The newest entries are in the *recent document*, at a
URL that everybody knows.  It links to the document before it, that one to the one before, and so
on.  Documents before the recent one are *archived* and never change (RFC 4287, RFC 5005).

This package needs no broker.  A publisher keeps a log; a reader uses a follower:

``entries``     the values: an entry, and its links, authors and content; entries as JSON
``schema``      the tables of logs
``log``         appends to logs, and reads them; functions of an SQLAlchemy connection
``pruning``     deletes old entries of logs; functions of an SQLAlchemy connection
``atom``        writes documents as Atom
``feeds``       serves the documents of logs: from an archive of files, or made from the rows
``documents``   reads documents, of Simplefeeds and of other people's archives
``chain``       fetches documents, and finds the oldest one that has entries to process
``follower``    processes each entry of somebody's feed once at least, and in order
``processing``  hands on the entries of a document, and saves the position
``pings``       writes pings as entries, and reads them
``errors``      what can go wrong when a feed is followed
``waiting``     what a follower waits for, and how long
``markers``     remembers which entry was processed last
"""
