"""Applications: programs around the broker, such as one that stores feeds for their authors.

An application is to the broker what somebody else's program is: it reaches the broker through the
public interfaces only.  It may import ``interfaces`` with the values that they exchange (``model``,
``records``, ``log_entries``, ``events``, ``errors``, ``counters``), ``timing`` and ``urls`` to work
with those, ``wire``, ``web``, ``client`` and itself.  ``tests/test_house.py`` refuses everything
else.
"""
