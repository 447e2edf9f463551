"""Finds out who wants to save: by a name with a password, or by an API token.

Sessions do not count here: a browser adds its cookie to whatever another site makes it send.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Final

from twisted.web.server import Request

from rsscloud_broker.apps.hosting.documents import NotStored
from rsscloud_broker.http.requests import client_address, header
from rsscloud_broker.interfaces import Caller, IAccounts, ICallers

_BASIC: Final = re.compile(r"basic +([A-Za-z0-9+/=]{1,4096}) *", re.IGNORECASE)

#: What a client must send; the value of WWW-Authenticate.
CHALLENGE: Final = 'Basic realm="rsscloud-broker", charset="UTF-8", Bearer realm="rsscloud-broker"'


class Gate:
    """Lets those in who have an account.

    :param allow_plain: whether passwords are accepted over plain HTTP from other machines.
    """

    def __init__(self, accounts: IAccounts, callers: ICallers, *, allow_plain: bool) -> None:
        self._accounts = accounts
        self._callers = callers
        self._allow_plain = allow_plain

    async def by_password(self, request: Request, name: str, password: str) -> Caller:
        """The caller with a name and a password.

        :raises NotStored: the password came over a connection on which others can read it.
        :raises SignInFailed, TooMany: see ``IAccounts.caller_of_password``.
        """
        if not self._allow_plain and not self._callers.is_confidential(request):
            raise NotStored(
                "Passwords are accepted over HTTPS only, since others can read them on their way: "
                "use the https URL of this server. (The operator can allow it: "
                "allow_plain_passwords in [apps.hosting].) Nothing was changed, but the password "
                "was readable: change it.",
                403,
            )
        return await self._accounts.caller_of_password(name, password, client_address(request))

    async def by_header(self, request: Request) -> Caller:
        """The caller by the header ``Authorization``: Basic (RFC 7617) or Bearer (RFC 6750).

        :raises NotStored: there is none, or its token is not valid; or as for ``by_password``.
        :raises SignInFailed, TooMany: as for ``by_password``.
        """
        credentials = header(request, "authorization")
        if basic := _BASIC.fullmatch(credentials):
            return await self.by_password(request, *_parse_basic(basic[1]))
        caller = await self._callers.caller(request) if credentials else None
        if caller is None or caller.session is not None:
            raise NotStored(
                "Say who you are: send your name and password (Basic), or an API token with the "
                "scope publish (Bearer).",
                401,
            )
        return caller


def _parse_basic(encoded: str) -> tuple[str, str]:
    """The name and the password in credentials of Basic; raises ``NotStored`` if unreadable."""
    try:
        text = b64decode(encoded, validate=True).decode("utf-8")
    except ValueError:
        raise NotStored(
            "The header Authorization cannot be read: Basic is followed by NAME:PASSWORD in UTF-8 "
            "and base64.",
            401,
        ) from None
    name, _, password = text.partition(":")
    return name, password
