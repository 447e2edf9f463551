"""How fast the broker is, each time beside a floor: ``python -m benchmarks``.

A floor is the least that such work costs with Twisted, measured on the same
machine in the same run; the ratio to it means the same on a slow machine as on
a fast one.  Real processes talk over real sockets: the broker under ``twistd``
with SQLite on the disk, receivers, load generators and floors.  They need Linux,
for its ``/proc`` and for every address of 127.0.0.0/8 to be there.

Counts are asserted (everybody was notified, once), speed is not.

- ``__main__``: the command; ``report``: tables, and what is said of the machine.
- ``notify``, ``pings``, ``change_list``, ``black_holes``, ``start``: the rows.
- ``broker``: a broker with a database that has been filled before it starts.
- ``processes``: starting, asking, measuring and ending processes.
- ``receiver``, ``load``: the other side, in bare sockets, so as to cost little.
- ``floor_clients``, ``floor_servers``: the floors, in bare Twisted.
"""
