"""What parses documents in a test's own process, with the encoding that crosses to another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from rsscloud_broker.outbound.couriers.parse_messages import Signature

P = ParamSpec("P")
T = TypeVar("T")


async def parse_here(owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function; its arguments and its result are encoded and decoded, as by ``Parsers``."""
    signature = Signature(function)
    result: Any = signature.decode_result(signature.call(signature.encode_arguments(args, kwargs)))
    return result  # type: ignore[no-any-return]
