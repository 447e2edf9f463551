"""``xmlStorageSystem``, by which Radio UserLand and its kin upload files; ``saveRss`` grew from it.

By XML-RPC, and by SOAP 1.1 with the SOAPAction ``/xmlStorageSystem``::

    registerUser(email, name, password, clientPort, userAgent, serialNumber)
        flError, message, usernum
    getServerCapabilities(email, password)
        flError, message, legalFileExtensions, maxFileSize, maxBytesPerUser, ctBytesInUse,
        yourUpstreamFolderUrl
    saveMultipleFiles(email, password, relativepathList, fileTextList)
        flError, message, urlList, yourUpstreamFolderUrl
    deleteMultipleFiles(email, password, relativepathList)
        flError, message, errorList

Each returns a struct.  If ``flError`` is true, ``message`` says why.  The ``email`` is the name of
an account.  ``registerUser`` returns that name as ``usernum``, which clients send as the ``email``
from then on.  Many clients send the MD5 hash of the password in place of the password; then that
hash, in hexadecimal, must be the password of the account.

Sources: "xmlStorageSystem" (UserLand, 2001 to 2002), and the Python Community Server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC, withRequest
from zope.interface import implementer

from rsscloud_broker.apps.hosting.documents import (
    EXTENSIONS,
    NotStored,
    check_path,
    encoded,
    is_xml,
)
from rsscloud_broker.apps.hosting.gate import Gate, source_of
from rsscloud_broker.apps.hosting.hosting import Hosting
from rsscloud_broker.errors import Refused, SignInFailed
from rsscloud_broker.interfaces import (
    Caller,
    IAccounts,
    IFrontDoor,
    Route,
    SoapOperation,
    SoapService,
)
from rsscloud_broker.wire import rsscloud
from rsscloud_broker.wire.rsscloud import BadRegistration
from rsscloud_broker.wire.text import clean, sentence, text_of

#: How many files one call may save or delete.
MAX_FILES: Final = 200

Struct: TypeAlias = dict[str, Any]

_REGISTER: Final = ("email", "name", "password", "clientPort", "userAgent", "serialNumber")
_SAVE: Final = ("email", "password", "relativepathList", "fileTextList")
_DELETE: Final = ("email", "password", "relativepathList")
_ASK: Final = ("email", "password")


class StorageSystem:
    """Does what a call asks for.

    :param accounts: registers accounts; None if strangers cannot register.
    """

    def __init__(self, hosting: Hosting, gate: Gate, accounts: IAccounts | None) -> None:
        self._hosting = hosting
        self._gate = gate
        self._accounts = accounts
        self.calls: Mapping[str, tuple[tuple[str, ...], Callable[..., Awaitable[Struct]]]] = {
            "registerUser": (_REGISTER, self._register),
            "getServerCapabilities": (_ASK, self._capabilities),
            "saveMultipleFiles": (_SAVE, self._save),
            "deleteMultipleFiles": (_DELETE, self._delete),
        }

    async def call(self, name: str, request: Request, values: Mapping[str, Any]) -> Struct:
        """Answer a call.

        :param values: the parameters by name; absent ones may be left out.
        """
        parameters, answer = self.calls[name]
        try:
            return await answer(request, *(values.get(each) for each in parameters))
        except Refused as error:
            return {"flError": True, "message": sentence(str(error))}

    async def _register(
        self, request: Request, email: Any, name: Any, password: Any, *ignored: Any
    ) -> Struct:
        wanted = _account_of(email, name)
        try:
            caller = await self._caller(request, wanted, password)
        except SignInFailed:
            if self._accounts is None:
                raise Refused(
                    "there is no account with this name and password, and nobody can register "
                    "here: ask the operator for an account"
                ) from None
            source = source_of(request)
            account = await self._accounts.register(wanted, text_of(password) or "", source)
            return _done(f"Welcome, {account.name}!", usernum=account.name)
        return _done(f"Welcome back, {caller.name}!", usernum=caller.name)

    async def _capabilities(self, request: Request, email: Any, password: Any) -> Struct:
        caller = await self._caller(request, _account_of(email), password)
        usage = await self._hosting.usage(caller)
        return _done(
            f"Hello, {caller.name}!",
            legalFileExtensions=list(EXTENSIONS),
            maxFileSize=self._hosting.max_bytes,
            maxBytesPerUser=usage.limits.bytes,
            ctBytesInUse=usage.bytes,
            yourUpstreamFolderUrl=self._hosting.url_of(caller.name),
        )

    async def _save(
        self, request: Request, email: Any, password: Any, names: Any, contents: Any
    ) -> Struct:
        caller = await self._caller(request, _account_of(email), password)
        paths = [check_path(each) for each in _texts(names)]
        bodies = contents if isinstance(contents, list) else [contents]
        if len(paths) != len(bodies):
            text = f"There are {len(paths)} names and {len(bodies)} files: send as many of each."
            raise NotStored(text, 400)
        files = [(path, _bytes(path, each)) for path, each in zip(paths, bodies, strict=True)]
        problems = await self._hosting.save_all(caller, files, source_of(request))
        urls = [
            "" if problem else self._hosting.url_of(caller.name, path)
            for path, problem in zip(paths, problems, strict=True)
        ]
        failed = _sentences(paths, problems)
        text = failed or f"{len(paths)} {_files(len(paths))} saved for you, {caller.name}."
        folder = self._hosting.url_of(caller.name)
        return _done(text, flError=bool(failed), urlList=urls, yourUpstreamFolderUrl=folder)

    async def _delete(self, request: Request, email: Any, password: Any, names: Any) -> Struct:
        caller = await self._caller(request, _account_of(email), password)
        source, paths = source_of(request), _texts(names)
        problems = []
        for path in paths:
            try:
                was_there = await self._hosting.remove(caller, path.removeprefix("/"), source)
                problems.append("" if was_there else "there is no such file")
            except Refused as error:
                problems.append(str(error))
        failed = _sentences(paths, problems)
        text = failed or f"{len(paths)} {_files(len(paths))} deleted for you, {caller.name}."
        return _done(text, flError=bool(failed), errorList=problems)

    async def _caller(self, request: Request, name: str, password: Any) -> Caller:
        return await self._gate.by_password(request, name, text_of(password) or "")


def _done(message: str, **members: Any) -> Struct:
    return {"flError": False, "message": message, **members}


def _files(number: int) -> str:
    return "file was" if number == 1 else "files were"


def _sentences(paths: Sequence[str], problems: Sequence[str]) -> str:
    """What was wrong with each file, for people; empty if nothing was."""
    pairs = zip(paths, problems, strict=True)
    return " ".join(f"{clean(path)[:80]}: {problem}" for path, problem in pairs if problem)


def _account_of(email: Any, name: Any = None) -> str:
    """The name of the account that a call means.

    Some clients cannot send anything but an address of e-mail, of which the first part counts.
    """
    texts = [(text_of(each) or "").strip().lower() for each in (email, name)]
    first, second = texts
    if "@" not in first:
        return first or second
    return second if second and " " not in second else first.partition("@")[0]


def _texts(values: Any) -> list[str]:
    """The names of files in a call.

    :raises NotStored: they are no list of texts, or too many.
    """
    given = values if isinstance(values, list) else [values]
    texts = [text for text in map(text_of, given) if text is not None]
    if len(texts) < len(given) or len(texts) > MAX_FILES:
        raise NotStored(f"The names of files must be a list of at most {MAX_FILES} strings.", 400)
    return texts


def _bytes(path: str, content: Any) -> bytes:
    """The bytes of a file in a call.

    :raises NotStored: there are none.
    """
    if isinstance(content, bytes):
        return content
    text = text_of(content)
    if text is None:
        raise NotStored(f"{path!r} must come as a string or as base64.", 400)
    return encoded(text) if is_xml(path) else text.encode("utf-8", "replace")


class StorageProcedures(XMLRPC):
    """The XML-RPC procedures ``xmlStorageSystem.*`` for files."""

    def __init__(self, system: StorageSystem) -> None:
        super().__init__()
        self._system = system

    async def _call(self, name: str, least: int, request: Request, values: Sequence[Any]) -> Struct:
        parameters, _ = self._system.calls[name]
        try:
            rsscloud.check_count(name, values, least, len(parameters))
        except BadRegistration as error:
            raise Refused(str(error)) from error
        named = dict(zip(parameters, values, strict=False))
        return await self._system.call(name, request, named)

    @withRequest  # type: ignore[untyped-decorator] # of Twisted
    async def xmlrpc_registerUser(self, request: Request, *values: Any) -> Struct:
        """Say who uploads files: email, name, password, clientPort, userAgent, serialNumber."""
        return await self._call("registerUser", 3, request, values)

    @withRequest  # type: ignore[untyped-decorator] # of Twisted
    async def xmlrpc_getServerCapabilities(self, request: Request, *values: Any) -> Struct:
        """Tell which files are stored, and how much room there is: email, password."""
        return await self._call("getServerCapabilities", 2, request, values)

    @withRequest  # type: ignore[untyped-decorator] # of Twisted
    async def xmlrpc_saveMultipleFiles(self, request: Request, *values: Any) -> Struct:
        """Save files: email, password, an array of names, and an array of contents."""
        return await self._call("saveMultipleFiles", 4, request, values)

    @withRequest  # type: ignore[untyped-decorator] # of Twisted
    async def xmlrpc_deleteMultipleFiles(self, request: Request, *values: Any) -> Struct:
        """Delete files: email, password, an array of names."""
        return await self._call("deleteMultipleFiles", 3, request, values)

    # For system.methodSignature: the type of the result, then those of the parameters.
    xmlrpc_registerUser.signature = (
        ("struct", "string", "string", "string", "int", "string", "string"),
    )
    xmlrpc_getServerCapabilities.signature = (("struct", "string", "string"),)
    xmlrpc_saveMultipleFiles.signature = (("struct", "string", "string", "array", "array"),)
    xmlrpc_deleteMultipleFiles.signature = (("struct", "string", "string", "array"),)


@implementer(IFrontDoor)
class StorageSystemDoor:
    """The front door for ``xmlStorageSystem``.

    :param aliases: further SOAPActions that no other front door takes.
    """

    name = "hosting_storage_system"

    def __init__(self, system: StorageSystem, aliases: tuple[str, ...]) -> None:
        self._system = system
        self._aliases = aliases

    def routes(self) -> Sequence[Route]:
        return []

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {"xmlStorageSystem": StorageProcedures(self._system)}

    def soap_services(self) -> Sequence[SoapService]:
        operations = {
            name: SoapOperation(self._answering(name), parameters, takes_request=True)
            for name, (parameters, _) in self._system.calls.items()
        }
        return [SoapService("/rssCloud", operations, self._aliases)]

    def _answering(self, name: str) -> Callable[[Mapping[str, Any], Any], Awaitable[Struct]]:
        async def answer(values: Mapping[str, Any], request: Request) -> Struct:
            return await self._system.call(name, request, values)

        return answer
