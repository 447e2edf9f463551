"""The codecs of all protocols: they decode bytes into plain values, and encode the values again.

Nothing here does input or output, so all of it can be tested as pure functions, and fuzzed.
Front doors, notifiers, sinks and the client use it.
"""
