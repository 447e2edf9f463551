"""Makes the secrets of sessions, API tokens and sign-in links, and what is derived from them.

Each secret has 256 random bits.  The database has only its SHA-256 digest: who reads the database,
or a backup of it, can sign in with none of them.  A slow hash is for passwords, which can be
guessed; these cannot.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from hashlib import sha256
from typing import Final

from rsscloud_broker.errors import InvalidAccount
from rsscloud_broker.interfaces.accounts import SCOPES
from rsscloud_broker.wire.text import clean

#: How the secret of every API token begins, so that people and scanners recognise it.
TOKEN_PREFIX: Final = "rsb_"  # noqa: S105 # it is no secret

#: How many characters the name of a token may have, and how many days it may last.
MAX_NAME, MAX_DAYS = 80, 3650

#: Secrets are shorter than this; anything longer is none.
_MAX_SECRET: Final = 200


def new_secret() -> str:
    """The secret of a new session or sign-in link."""
    return secrets.token_urlsafe(32)


def new_token() -> str:
    """The secret of a new API token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def digest_of(secret: str) -> bytes:
    """The digest by which the store knows a secret; empty if the text cannot be a secret."""
    if not secret or len(secret) > _MAX_SECRET or not secret.isascii():
        return b""
    return sha256(secret.encode("ascii")).digest()


def csrf_of(secret: str) -> str:
    """The token that the forms of a session must send back (CSRF).

    Who knows the token cannot find out the secret.
    """
    return hmac.new(secret.encode("ascii"), b"forms of this session", sha256).hexdigest()


def check_token(name: str, scopes: Collection[str], days: int | None, *, is_admin: bool) -> str:
    """Check what a new API token shall be.

    :param is_admin: whether its account is an administrator's.
    :returns: the name of the token, without control characters.
    :raises InvalidAccount: it cannot be so.
    """
    name = clean(name).strip()
    if not name or len(name) > MAX_NAME:
        raise InvalidAccount(f"say in 1 to {MAX_NAME} characters what the token is for")
    unknown = sorted(set(scopes) - SCOPES.keys())
    if unknown or not scopes:
        wrong = f"{unknown[0]!r} is no scope" if unknown else "a token needs a scope"
        raise InvalidAccount(f"{wrong}; the scopes are {', '.join(SCOPES)}")
    if "admin" in scopes and not is_admin:
        raise InvalidAccount("only the account of an administrator can have the scope 'admin'")
    if days is not None and not 1 <= days <= MAX_DAYS:
        raise InvalidAccount(f"a token lasts 1 to {MAX_DAYS} days, or forever")
    return name


# --- known browsers ---------------------------------------------------------------


def mark_of(name: str, password_hash: str) -> str:
    """A mark for a browser in which somebody has signed in to an account.

    It is signed with the hash of the password, which only the broker knows.  So nobody else can
    make one, and another password makes it worthless.
    """
    nonce = secrets.token_urlsafe(12)
    return f"{nonce}.{_signature(name, password_hash, nonce)}"


def known_browser(mark: str, name: str, password_hash: str) -> str:
    """The browser that a mark of this account belongs to, as a key; empty if the mark is not right.

    Accounts without a stored password have no marks.
    """
    nonce, _, signature = mark.partition(".")
    if not password_hash or not mark.isascii() or len(mark) > _MAX_SECRET:
        return ""
    right = _signature(name, password_hash, nonce)
    return nonce if hmac.compare_digest(signature, right) else ""


def _signature(name: str, password_hash: str, nonce: str) -> str:
    """The signature of a mark: only who has the hash of the password can make it."""
    message = f"known browser {name} {nonce}".encode("ascii")
    return hmac.new(password_hash.encode("utf-8"), message, sha256).hexdigest()
