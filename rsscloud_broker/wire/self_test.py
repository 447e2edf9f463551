"""Encodes the exchange in which an operator tests how requests arrive at the operator's own broker.

``rsscloud-broker doctor`` sends a request to the broker's public URL, and the broker answers how
that request arrived, after all proxies::

    GET /doctor/self-test?time=1790683200&nonce=fq3...&proof=0c9d...

    {"arrived": {"host": "broker.example", "peer": "127.0.0.1", ...}, "proof": "77ab..."}

Both know a secret key, which is in the broker's data directory.  ``proof`` in the question is an
HMAC-SHA-256 of time and nonce, so that nobody else gets an answer.  ``proof`` in the answer covers
the nonce and the facts, so that the doctor knows that its own broker has answered, and not another
one.  A question is good for a minute.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode

#: The path at which the broker answers.
PATH: Final = "/doctor/self-test"


class WrongBroker(Exception):
    """An answer is not from the broker that was asked.  The text says why, as a clause."""


def question(key: bytes, nonce: str, now: float) -> str:
    """The query of a question.

    :param nonce: a random text, a new one for each question.
    :param now: the time, in seconds since the epoch.
    """
    time = f"{now:.0f}"
    proof = _proof(key, "question", time, nonce)
    return urlencode({"time": time, "nonce": nonce, "proof": proof})


def is_genuine(key: bytes, fields: Mapping[str, str], now: float) -> bool:
    """Whether a question is from somebody who knows the key, and is not old.

    :param fields: the parameters of the request, by name.
    """
    time, nonce, proof = (fields.get(name, "") for name in ("time", "nonce", "proof"))
    expected = _proof(key, "question", time, nonce)
    if not hmac.compare_digest(expected.encode(), proof.encode()):
        return False
    # A question is good for a minute, as the clocks of doctor and broker may differ.
    return abs(float(time) - now) <= 60.0  # the maker of the proof has written a number


def answer(key: bytes, nonce: str, arrived: Mapping[str, str]) -> bytes:
    """The body of the answer to a genuine question.

    :param arrived: facts about how the request arrived, by name.
    """
    proof = _proof(key, "answer", nonce, _canonical(arrived))
    return json.dumps({"arrived": dict(arrived), "proof": proof}).encode()


def read_answer(key: bytes, nonce: str, body: bytes) -> dict[str, str]:
    """The facts in an answer.

    :raises WrongBroker: the answer is from somebody else, or was changed on its way.
    """
    try:
        document = json.loads(body)
        arrived = {str(name): str(value) for name, value in document["arrived"].items()}
        proof = str(document["proof"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise WrongBroker("the answer is not one of a broker's self-test") from None
    if not hmac.compare_digest(_proof(key, "answer", nonce, _canonical(arrived)), proof):
        raise WrongBroker("the answer is from a broker with another data directory")
    return arrived


def _canonical(arrived: Mapping[str, str]) -> str:
    """The facts as one text, in an order that does not depend on the sender."""
    return json.dumps(dict(arrived), sort_keys=True)


def _proof(key: bytes, *texts: str) -> str:
    """The HMAC of some texts; as a JSON list, so that no two lists make the same bytes."""
    return hmac.new(key, json.dumps(texts).encode(), sha256).hexdigest()
