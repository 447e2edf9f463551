"""Makes the parts that plugins provide, and explains failures to the operator.

``composition`` calls it at the start.  A plugin may be anybody's code: its ``make`` may raise any
exception, or return an object that lacks a method.  The error then says which plugin of which
package it is, and what the operator can do.

A plugin is given the things that its maker names in ``needs``, as attributes of a `Given`, and
nothing else.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from attrs import fields, frozen
from twisted.cred.checkers import ICredentialsChecker
from zope.interface import Invalid, implementer
from zope.interface.exceptions import (
    BrokenImplementation,
    BrokenMethodImplementation,
    DoesNotImplement,
)
from zope.interface.interface import InterfaceClass, Method
from zope.interface.verify import verifyObject

from rsscloud_broker import interfaces
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.model.work import History
from rsscloud_broker.runtime.plugin_discovery import Makers, PluginError, discover, select
from rsscloud_broker.wire.text import clean


@frozen
class _Kind:
    """What makers of a kind make: its name for people, its interface, the class of its parts."""

    word: str
    interface: InterfaceClass
    parts: type


_PRODUCTS: Final[Mapping[str, _Kind]] = {
    "front_doors": _Kind("front door", interfaces.IFrontDoor, interfaces.FrontDoorParts),
    "notifiers": _Kind("notifier", interfaces.INotifier, interfaces.NotifierParts),
    "sinks": _Kind("sink", interfaces.IEventSink, interfaces.SinkParts),
    "checkers": _Kind("credentials checker", ICredentialsChecker, interfaces.CheckerParts),
    "apps": _Kind("application", interfaces.IApp, interfaces.AppParts),
}


class Given:
    """The things that a plugin needs, as attributes, and no others.

    :param plugin: the plugin in words, for errors.
    """

    def __init__(self, plugin: str, things: Mapping[str, Any]) -> None:
        vars(self).update(things, _plugin=plugin)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._plugin} uses {name!r}, which it does not name in needs")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self._plugin} must not change what it is given: {name!r}")


def make_all(
    makers: Makers, kind: str, chosen: Sequence[tuple[Any, Any]], parts: object, **own: Any
) -> list[Any]:
    """Make the parts of one kind of plugins.

    :param makers: all makers that were found.
    :param kind: one of `plugin_discovery.KINDS`.
    :param chosen: makers and their options, as `plugin_discovery.select` returns them.
    :param parts: has the things that plugins of this kind may need, as attributes.  Those that no
        plugin needs are not read.
    :param own: things that take the place of those of ``parts``.
    :returns: the parts, in the order of ``chosen``.
    :raises PluginError: a plugin needs what does not exist, or its ``make`` raises or returns an
        object that does not provide the interface of its kind; a line for each.
    """
    product = _PRODUCTS[kind]
    possible = [each.name for each in fields(product.parts)]
    made: list[Any] = []
    problems: list[str] = []
    for maker, options in chosen:
        plugin = described(makers, kind, maker)
        way_out = _way_out(kind, maker)
        if unknown := ", ".join(repr(name) for name in maker.needs if name not in possible):
            problems.append(
                f"{plugin} needs {unknown}, which does not exist; {product.word}s may need: "
                f"{', '.join(sorted(possible))}; {way_out}"
            )
            continue
        given = {name: own[name] if name in own else getattr(parts, name) for name in maker.needs}
        try:
            part = maker.make(options, Given(plugin, given))
        except (Exception, SystemExit) as error:
            problems.append(f"{plugin} cannot be made: make() {_raised(error)}; {way_out}")
            continue
        made.append(part)
        if faults := list(_faults(part, product.interface)):
            said = f"does not keep to {product.interface.__name__}: {', '.join(faults)}"
            problems.append(f"{plugin} {said}; {way_out}")
    if problems:
        raise PluginError("\n".join(problems))
    return made


def pushed_prefixes(
    makers: Makers, chosen: Mapping[str, Sequence[tuple[Any, Any]]], public_url: str, has_hub: bool
) -> tuple[str, ...]:
    """How the URLs of the topics begin whose content plugins push, as their makers declare.

    :param chosen: makers and their options, by kind.
    :param public_url, has_hub: see ``IPushesContent``.
    :raises PluginError: a declaration raises, or is no sequence of texts; with a line for each.
    """
    declared: list[str] = []
    problems: list[str] = []
    for kind, pairs in chosen.items():
        for maker, options in pairs:
            pushing = interfaces.IPushesContent(maker, None)
            if pushing is None:
                continue
            try:
                prefixes = pushing.pushed_prefixes(options, public_url, has_hub)
            except (Exception, SystemExit) as error:
                said = f"pushed_prefixes() {_raised(error)}"
            else:
                if isinstance(prefixes, list | tuple) and all(map(_is_prefix, prefixes)):
                    declared += prefixes
                    continue
                said = (
                    f"pushed_prefixes() returned {clean(repr(prefixes))[:100]}; it must return a "
                    'tuple of beginnings of URLs with a whole host, such as ("https://source.example/",)'
                )
            problems.append(f"{described(makers, kind, maker)}: {said}; {_way_out(kind, maker)}")
    if problems:
        raise PluginError("\n".join(problems))
    return tuple(declared)


def kept_history(
    doors: Sequence[tuple[Any, Any]], public_url: str, pushed: Sequence[str]
) -> History | None:
    """Which changes of topics the store keeps for the front doors that make feeds.

    :param doors: the makers of the front doors that run, and their options.
    :param pushed: how the URLs of topics begin whose content is pushed.
    :returns: None if no front door makes feeds.
    """
    found = [
        maker.history(options, public_url, pushed)
        for maker, options in doors
        if interfaces.IKeepsFeeds.providedBy(maker)
    ]
    if not found:
        return None
    left_out = set(found[0].left_out).intersection(*(each.left_out for each in found))
    contents = chain.from_iterable(each.contents for each in found)
    # A topic names one feed of its contents: that of the first front door.
    return History(tuple(sorted(left_out)), tuple(contents), found[0].feeds)


def _is_prefix(value: object) -> bool:
    """Whether a value begins URLs with a whole host; else topics of others are not fetched."""
    return isinstance(value, str) and "://" in value and value.count("/") >= 3


def make_notifiers(
    makers: Makers, chosen: Sequence[tuple[Any, Any]], parts: object
) -> dict[str, interfaces.INotifier]:
    """Make the notifiers.

    :param parts: see `make_all`.
    :returns: the notifiers, by their protocols.
    :raises PluginError: see `make_all`; or two notifiers have the same protocol.
    """
    made = make_all(makers, "notifiers", chosen, parts)
    found: dict[str, interfaces.INotifier] = {}
    makers_of: dict[str, Any] = {}
    for (maker, _), notifier in zip(chosen, made, strict=True):
        first = makers_of.setdefault(notifier.protocol, maker)
        if first is not maker:
            both = (described(makers, "notifiers", each) for each in (first, maker))
            raise PluginError(
                f"two notifiers carry the protocol {notifier.protocol!r}: {', and '.join(both)}; "
                f"set enabled = false in [notifiers.{first.name}] or [notifiers.{maker.name}]"
            )
        found[notifier.protocol] = notifier
    return found


def described(makers: Makers, kind: str, maker: interfaces.IPluginMaker) -> str:
    """A plugin in words: ``the sink 'line_log' of rsscloud-broker-example 1.0``."""
    return f"the {_PRODUCTS[kind].word} {maker.name!r} of {makers.package_of(maker)}"


def _way_out(kind: str, maker: interfaces.IPluginMaker) -> str:
    return f"fix or uninstall it, or set enabled = false in [{kind}.{maker.name}]"


def _raised(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = clean(str(error))
    what = type(error).__name__ + (f": {said}" if said else "")
    return f"raised {what} ({frame.filename}, line {frame.lineno})"


def _faults(part: Any, interface: InterfaceClass) -> Iterator[str]:
    """What is wrong with a part that a maker has made, a clause for each fault."""
    if part is None:
        yield "make() returned None"
        return
    try:
        verifyObject(interface, part)
    except Invalid as error:
        for each in getattr(error, "exceptions", (error,)):  # a single fault is not wrapped
            yield _fault(each)
        return
    for attribute in ("name", "protocol"):  # used as keys
        if attribute in interface.names(all=True):
            value = getattr(part, attribute)
            if not isinstance(value, str):
                yield f"its {attribute} is a {type(value).__name__} and must be a str"


def _fault(error: Invalid) -> str:
    """A fault that zope.interface has found, as a clause for people."""
    match error:
        case DoesNotImplement():
            return "its class is not marked with @implementer"
        case BrokenMethodImplementation():
            return f"the method {_signature(error.method)}: {error.mess}"
        case BrokenImplementation():
            member = error.args[1]
            if isinstance(member, Method):
                return f"it lacks the method {_signature(member)}"
            return f"it lacks the attribute {member.__name__}"
    return clean(str(error))


def _signature(method: Method) -> str:
    """A method of an interface as people write it, with its parameters."""
    return f"{method.__name__}{method.getSignatureString()}"


# --- the protocols of a configuration --------------------------------------------


@implementer(interfaces.IOutbound)
class _NoOutbound:
    """The client of notifiers that are made only to learn their protocols."""

    async def request(self, request: interfaces.OutboundRequest) -> interfaces.OutboundReply:
        raise OutboundError("this notifier was not made to call anybody")


def protocols(tables: Mapping[str, Mapping[str, Any]], where: str = "") -> frozenset[str]:
    """The protocols of the notifiers that a configuration enables.

    :param tables: the tables of notifiers in the configuration, by name.
    :param where: the configuration file, for messages.
    :raises PluginError: see `discover` and `make_notifiers`.
    :raises ConfigError: see `select`.
    """
    makers = discover()
    chosen = select(makers.notifiers, tables, "notifiers", where)
    return frozenset(make_notifiers(makers, chosen, interfaces.NotifierParts(_NoOutbound())))
