"""Checks an installed broker, for its operator: ``rsscloud-broker doctor``.

``results``   what a check is given, what it finds, and how that is written
``machine``   the data directory, the disk, file descriptors, Twisted's plugin caches
``database``  the database, damage in it, and whether backups can be made
``network``   the clock, names, the rules for outgoing requests, and the servers that the operator
names: targets of the relay, and what is followed
``outside``   the public URL from outside in: proxies and certificates
``checks``    all checks in their order

A check is a function that takes the context of the broker to examine, and adds its findings to it.
The checks change nothing and do not disturb a running broker; they may run beside it at any time.
"""
