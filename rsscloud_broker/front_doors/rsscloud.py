"""The rssCloud front door: subscribers register, publishers ping.

By REST, where the answer is XML or JSON, with HTTP status 200 even if the request is
refused::

    POST /rsscloud/pleaseNotify          also /pleaseNotify
      notifyProcedure=&port=5337&path=/notify&protocol=http-post&url1=http://example.org/rss.xml
    <notifyResult success="true" msg="Thanks for the registration. ..."/>

    POST /rsscloud/ping                  also /ping
      url=http://example.org/rss.xml
    <result success="true" msg="Thanks for the ping."/>

``GET /rssCloud`` has forms for both, and browsers get pages as answers (see
``rsscloud_answers``).

By XML-RPC, as ``rssCloud.pleaseNotify(notifyProcedure, port, path, protocol,
urlList[, domain])`` and ``rssCloud.ping(url)``, which return true or a fault;
by SOAP 1.1 with parameters of the same names.  A registration without a domain
is for the caller's own address.

Sources: "SOAP meets RSS" (2003), the implementor's guide to rssCloud (2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attrs import field, frozen
from attrs.validators import ge
from twisted.internet.interfaces import IReactorTime
from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC, Fault
from zope.interface import implementer

from rsscloud_broker import errors, interfaces
from rsscloud_broker.front_doors.attempts import (
    CallbackProblem,
    RegistrationAttempts,
    require_one_success,
)
from rsscloud_broker.front_doors.rsscloud_answers import RssCloudPages, failure_of, rest_answer
from rsscloud_broker.http.answering import Answers
from rsscloud_broker.http.requests import all_parameters, client_address, parameters, passage
from rsscloud_broker.http.xmlrpc import procedure
from rsscloud_broker.model import Intent
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.deferreds import gather
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire import rsscloud
from rsscloud_broker.wire.origin import BadOrigin
from rsscloud_broker.wire.rsscloud import BadRegistration, Limited, NotAllowed
from rsscloud_broker.wire.text import text_of
from rsscloud_broker.wire.wsdl import RSSCLOUD, rsscloud_wsdl
from rsscloud_broker.wire.xmlrpc import RSSCLOUD_FAULT

#: Of how many topics the door remembers the last ping, to enforce the pause between pings.
REMEMBERED_PINGS = 10_000


@frozen
class RssCloudOptions:
    """Options of the rssCloud front door.

    :ivar ping_pause: seconds within which a second ping of a topic is refused;
        0 refuses none.
    """

    ping_pause: int = field(default=0, validator=ge(0))


class RssCloud:
    """Handles registrations and pings for the three interfaces: REST, XML-RPC and SOAP."""

    def __init__(
        self, options: RssCloudOptions, broker: interfaces.IBroker, clock: IReactorTime
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._pause = options.ping_pause
        self._last_pings: BoundedDict[str, float] = BoundedDict(REMEMBERED_PINGS)

    async def register(self, fields: Mapping[str, str], topics: Sequence[str], caller: str) -> None:
        """Subscribe a callback to topics; the registration succeeds if one topic succeeds.

        :param fields: the fields of the registration, for ``wire.rsscloud.intents_of``.
        :param caller: the address that the request came from.
        :raises BadRegistration: no subscription was made; the text is for the client.
        :raises Limited: a limit on requests refused at least one topic.
        """
        # Protocols that carry content are left out: a registration cannot say how to sign it.
        offered = self._broker.protocols - self._broker.content_protocols
        wanted = rsscloud.intents_of(fields, topics, caller, offered)
        attempts = [partial(self._subscribe, intent) for intent in wanted]
        await RegistrationAttempts(attempts, self._clock).require_one_success()

    async def _subscribe(self, intent: Intent) -> BadRegistration | None:
        """Subscribe to one topic; return the error for the client if that fails."""
        try:
            await self._broker.subscribe(intent)
        except errors.TopicUnreadable as error:
            sentence = rsscloud.unreadable("subscription", intent.topic, _refusal_rule(error))
            return BadRegistration(sentence, error.reason)
        except errors.UnsupportedProtocol as error:
            sentence = rsscloud.unsupported_protocol(error.protocol)
        except errors.CallbackFailed as error:
            sentence = rsscloud.callback_failed(_refusal_rule(error))
            answered = not error.refused and error.retry_after is None
            return CallbackProblem(sentence, str(error), answered=answered)
        except errors.TooMany as error:
            sentence = rsscloud.limited("subscription", error.reason, error.retry_after)
            return Limited(sentence, error.retry_after)
        except errors.Forbidden as error:
            return NotAllowed(str(error))
        except errors.Refused:
            sentence = rsscloud.callback_failed()
        else:
            return None
        return BadRegistration(sentence)

    async def ping(
        self, urls: Sequence[str], source: str, origin: str, *, again: bool = False
    ) -> None:
        """Handle a ping of each topic; the request succeeds if one ping succeeds.

        :param source: the address that the request came from.
        :param origin: of the ping; see ``Ping``.
        :param again: whether the broker tries once more later to fetch a topic, if this fails and
            the topic has subscribers.
        :raises BadRegistration: no ping succeeded; the text is for the client.
        :raises Limited: a limit on requests refused at least one ping.
        """
        require_one_success(
            await gather(self._ping(url, source, origin, again=again) for url in urls)
        )

    async def _ping(
        self, url: str, source: str, origin: str, *, again: bool
    ) -> BadRegistration | None:
        """Handle the ping of one topic; return the error for the client if it is refused."""
        topic = normal_form(url)
        if self._pause:
            now = self._clock.seconds()
            if now - self._last_pings.get(topic, float("-inf")) < self._pause:
                return BadRegistration(rsscloud.too_soon(self._pause))
            self._last_pings[topic] = now
        try:
            news = await self._broker.ping_topic(url, source, again=again, origin=origin)
        except errors.TopicUnreadable as error:
            sentence = rsscloud.unreadable("ping", url, _refusal_rule(error))
            return BadRegistration(sentence, error.reason)
        except (errors.TooMany, errors.Forbidden, errors.Unavailable) as error:
            # It begins no pause, or a stranger could keep the publisher's pings out.
            self._last_pings.pop(topic, 0.0)
            if isinstance(error, errors.TooMany):
                sentence = rsscloud.limited("ping", error.reason, error.retry_after)
                return Limited(sentence, error.retry_after)
            if isinstance(error, errors.Forbidden):
                return NotAllowed(str(error))
            raise
        if origin and not news:  # it is ignored, as it says that it was here before
            self._last_pings.pop(topic, 0.0)
        return None

    async def call_ping(self, url: str, source: str, origin: str) -> None:
        """Handle a ping by XML-RPC or SOAP, which succeeds even if the topic cannot be read.

        As the answer says success, the ping must not be lost: the broker fetches the topic again
        later.

        :raises Limited, NotAllowed: the ping was refused; the text is for the client.
        """
        try:
            await self.ping(rsscloud.distinct([url]), source, origin, again=True)
        except (Limited, NotAllowed):
            raise
        except BadRegistration:
            pass  # these calls have no answer for it


class RssCloudProcedures(XMLRPC):
    """The XML-RPC procedures ``rssCloud.*``; a call that fails is answered with a fault."""

    def __init__(self, rss_cloud: RssCloud) -> None:
        super().__init__()
        self._rss_cloud = rss_cloud

    @procedure(["boolean"])
    async def xmlrpc_hello(self, request: Request, *ignored: Any) -> bool:
        """Answer true, to show that the broker runs."""
        return True

    @procedure(
        ["boolean", "string", "int", "string", "string", "array"],
        ["boolean", "string", "int", "string", "string", "array", "string"],
    )
    async def xmlrpc_pleaseNotify(self, request: Request, *values: Any) -> bool:
        """Register for notifications: notifyProcedure, port, path, protocol, urlList and, if
        another host than the caller is to be notified, its domain.
        """
        try:
            fields, topics = rsscloud.fields_from_parameters("pleaseNotify", values)
            await self._rss_cloud.register(fields, topics, client_address(request))
        except BadRegistration as error:
            raise Fault(RSSCLOUD_FAULT, str(error)) from error
        return True

    @procedure(["boolean", "string"])
    async def xmlrpc_ping(self, request: Request, *values: Any) -> bool:
        """Say that the feed at a URL has changed."""
        try:
            rsscloud.check_count("ping", values, 1, 1)
            url = text_of(values[0])
            if url is None:
                raise BadRegistration("The parameter url must be a string.")
            await self._rss_cloud.call_ping(url, client_address(request), passage(request).origin)
        except (BadRegistration, BadOrigin) as error:
            raise Fault(RSSCLOUD_FAULT, str(error)) from error
        return True


class OldProcedures(XMLRPC):
    """The XML-RPC procedures ``xmlStorageSystem.*``, which old feeds name.

    A registration that fails is answered with false, and not with a fault.
    """

    def __init__(self, rss_cloud: RssCloud) -> None:
        super().__init__()
        self._rss_cloud = rss_cloud

    async def _register(self, name: str, request: Request, values: Sequence[Any]) -> bool:
        """Register; False if that fails, a Fault if the parameters are wrong."""
        try:
            fields, topics = rsscloud.fields_from_parameters(name, values)
        except BadRegistration as error:
            raise Fault(RSSCLOUD_FAULT, str(error)) from error
        try:
            await self._rss_cloud.register(fields, topics, client_address(request))
        except BadRegistration:
            return False
        return True

    @procedure(["boolean", "string", "int", "string", "string", "array"])
    async def xmlrpc_rssPleaseNotify(self, request: Request, *values: Any) -> bool:
        """An old name of rssCloud.pleaseNotify."""
        return await self._register("rssPleaseNotify", request, values)

    @procedure(["boolean", "string", "int", "string", "string", "array"])
    async def xmlrpc_requestNotification(self, request: Request, *values: Any) -> bool:
        """An old name of rssCloud.pleaseNotify."""
        return await self._register("requestNotification", request, values)


@implementer(interfaces.IFrontDoor)
class RssCloudDoor:
    """The front door for rssCloud, by REST, XML-RPC and SOAP."""

    name = "rsscloud"

    def __init__(self, options: RssCloudOptions, parts: interfaces.FrontDoorParts) -> None:
        self._rss_cloud = RssCloud(options, parts.broker, parts.clock)
        self._pages = RssCloudPages(parts)

    def routes(self) -> Sequence[interfaces.Route]:
        register = Answers(self._rest_please_notify, failure_of("notifyResult"))
        ping = Answers(self._rest_ping, failure_of("result"))
        return [
            *self._pages.routes(),
            *(
                interfaces.Route(path, "POST", page, for_everybody=True)
                for path, page in (
                    *((path, register) for path in rsscloud.REST_PATHS),
                    ("/rsscloud/ping", ping),
                    ("/ping", ping),
                    ("/ping/", ping),
                )
            ),
        ]

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {
            "rssCloud": RssCloudProcedures(self._rss_cloud),
            "xmlStorageSystem": OldProcedures(self._rss_cloud),
        }

    def soap_services(self) -> Sequence[interfaces.SoapService]:
        fields = rsscloud.REGISTRATION_FIELDS
        old = interfaces.SoapOperation(partial(self._soap_please_notify, old=True), fields)
        return [
            interfaces.SoapService(
                action="/rssCloud",
                aliases=("/xmlStorageSystem",),
                operations={
                    "pleaseNotify": interfaces.SoapOperation(self._soap_please_notify, fields),
                    "rssPleaseNotify": old,
                    "requestNotification": old,
                    "ping": interfaces.SoapOperation(self._soap_ping, ("url",), takes_request=True),
                },
                description=interfaces.SoapDescription(
                    RSSCLOUD, rsscloud.SOAP_PATHS, rsscloud_wsdl
                ),
            )
        ]

    async def _rest_please_notify(self, request: Request) -> bytes:
        """Answer a registration by REST."""
        form = parameters(request)
        names = ("notifyProcedure", "port", "path", "protocol", "domain")
        fields = {name: form.get(name.lower(), "") for name in names}

        async def register() -> str:
            topics = rsscloud.topics_of_form(all_parameters(request))
            await self._rss_cloud.register(fields, topics, client_address(request))
            return rsscloud.REGISTERED

        return await rest_answer(request, "notifyResult", register, self._pages.result)

    async def _rest_ping(self, request: Request) -> bytes:
        """Answer a ping by REST, of one topic or of several."""

        async def ping() -> str:
            topics = rsscloud.distinct(rsscloud.topics_of_form(all_parameters(request)))
            if not topics:
                raise BadRegistration(rsscloud.missing(["url"]))
            await self._rss_cloud.ping(topics, client_address(request), _read_origin(request))
            return rsscloud.PINGED

        return await rest_answer(request, "result", ping, self._pages.result)

    async def _soap_please_notify(
        self, values: Mapping[str, Any], caller: str, *, old: bool = False
    ) -> bool:
        """Register by SOAP: true, or Refused, which becomes a fault.

        :param old: whether it is called by an old name; then it is false if the registration fails,
            as in ``OldProcedures``.
        """
        well_formed = False
        try:
            fields, topics = rsscloud.fields_from_values(values)
            well_formed = values.keys() >= {"port", "path", "protocol", "urlList"}
            await self._rss_cloud.register(fields, topics, caller)
        except BadRegistration as error:
            if old and well_formed:
                return False
            raise errors.Refused(str(error)) from error
        return True

    async def _soap_ping(self, values: Mapping[str, Any], request: Request) -> bool:
        """Ping by SOAP: true, or Refused, which becomes a fault."""
        url = text_of(values.get("url")) or ""
        if not url.strip():
            raise errors.Refused(rsscloud.missing(["url"]))
        try:
            await self._rss_cloud.call_ping(url, client_address(request), passage(request).origin)
        except (Limited, NotAllowed) as error:
            raise errors.Refused(str(error)) from error
        return True


def _read_origin(request: Request) -> str:
    """The origin of a ping by REST; BadRegistration if the header cannot be used."""
    try:
        return passage(request).origin
    except BadOrigin as error:
        raise BadRegistration(str(error)) from error


def _refusal_rule(error: errors.TopicUnreadable | errors.CallbackFailed) -> str:
    """Why the broker does not call a URL at all; empty if it called the URL and failed.

    In the second case nothing may be added to the sentence, since clients compare it.
    """
    return error.reason if error.refused else ""
