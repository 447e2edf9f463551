"""The front door for the programs that people already have: editors and Micropub clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker.accounts.names import is_name
from rsscloud_broker.apps.writing.editors import Editors
from rsscloud_broker.apps.writing.metaweblog import METHODS
from rsscloud_broker.apps.writing.micropub import Micropub
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.rsd import MEDIA_TYPE, PATH, rsd_document
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.http.answering import Answer, Answers
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import AppParts, IFrontDoor, Route, SoapService


@implementer(IFrontDoor)
class PostingDoor:
    """The front door for MetaWeblog, Blogger, Micropub and RSD.

    :param options: the limits.
    """

    name = "writing_posting"

    def __init__(self, writing: Writing, parts: AppParts, options: WritingOptions) -> None:
        self._writing = writing
        self._public_url = parts.public_url
        self._micropub = Micropub(writing, parts, options)
        self._editors = Editors(writing, parts, options.allow_plain_passwords)

    def routes(self) -> Sequence[Route]:
        return [
            Route(PATH, "GET", Answers(self._answer_rsd), for_everybody=True),
            *self._micropub.routes(),
        ]

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {prefix: kind(self._editors) for prefix, kind in METHODS.items()}

    def soap_services(self) -> Sequence[SoapService]:
        return []

    async def _answer_rsd(self, request: Request) -> Answer:
        """Answer with the RSD document of an account, or of the broker if no account is named."""
        name = parameter(request, "name")
        home = self._writing.home_url(name) if is_name(name) else f"{self._public_url}/"
        return Answer(rsd_document(self._public_url, home), f"{MEDIA_TYPE}; charset=utf-8")
