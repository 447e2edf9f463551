"""The decorator of values that are made for each ping and each notification.

attrs keeps a frozen class from changes at run time, which makes its ``__init__`` three times as
slow: it has to go around its own ``__setattr__`` for each field.  mypy finds changes of a frozen
value before anything runs.  So mypy sees ``attrs.frozen`` here, and what runs is a class with the
same equality and hash whose ``__init__`` merely assigns.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

__all__ = ["frozen"]

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define

    frozen = partial(define, unsafe_hash=True)
