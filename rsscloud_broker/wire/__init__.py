"""Codecs of every protocol: bytes in, plain values out, and back.

Nothing here does input or output, so everything here can be tested as a pure
function and fuzzed.
"""
