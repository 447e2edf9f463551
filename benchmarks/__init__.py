"""Measures how fast the broker is, beside a floor: ``python -m benchmarks``.

A floor is the least that the same work costs with Twisted, measured on the same machine in the
same run.  The ratio of the broker to the floor means the same on a slow machine as on a fast one.
Real processes talk over real sockets: the broker under ``twistd`` with SQLite on the disk,
receivers, load generators and floors.  They need Linux, for ``/proc`` and since every address of
127.0.0.0/8 exists there.

The benchmarks check counts (every subscriber was notified once); they do not fail for low speed.

- ``__main__``: the command; ``report``: tables, and a sentence about the machine.
- ``notify``, ``pings``, ``change_list``, ``black_holes``, ``relay``,
  ``rivers``, ``hosting``, ``simplefeed``, ``start``, ``planning``: the rows.
- ``sizes``, ``size_data``, ``size_waits``: a command of its own, for very large databases.
- ``broker``: a broker whose database was filled before it started.
- ``processes``: starts, asks, measures and ends processes.
- ``receiver``, ``load``, ``stream_readers``, ``name_server``: the other side, in bare sockets,
  since these are cheap.
- ``posts``: an application that publishes a feed.
- ``floor_clients``, ``floor_servers``: the floors, in bare Twisted.
"""
