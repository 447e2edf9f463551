"""What an operation of administrators is, and how a function becomes one.

``operations`` has all of them.  The API, the document at ``/api``, the commands and the forms of
the console are made from an ``Operation``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import getdoc, signature
from types import NoneType
from typing import Any, get_type_hints

import msgspec
from attrs import field, frozen
from msgspec import NODEFAULT, structs

from rsscloud_broker.interfaces import IAdministration
from rsscloud_broker.web.admin import shapes


@frozen
class Administrator:
    """Who does an operation.

    :ivar verbs: what administrators can do.
    :ivar name: the name of the account.
    :ivar now: the present time, in seconds since the epoch.
    """

    verbs: IAdministration
    name: str
    now: float


#: Does an operation for an administrator, given what it takes; what returns nothing is done then.
Run = Callable[..., Awaitable[shapes.Shape | None]]


@frozen
class OperationForm:
    """How the console offers an operation.

    :ivar page: the path of the page that has the form.
    :ivar done: what a page says when it is done.
    :ivar question: what the page asks before, if nobody can undo it.
    """

    page: str
    button: str
    done: str
    question: str = ""


@frozen
class Operation:
    """Something that administrators can see or do.

    :ivar name: its name, which is also that of the command.
    :ivar path: below ``/api/v1``; ``{id}`` stands for the id in ``asks``.
    :ivar help: what it does, in a sentence.
    :ivar asks, answers: the classes of what it takes, from the path, and from the query or the
        body, and of what it answers.
    :ivar example: an example of what it takes.
    :ivar form: how the console offers a change; None for what changes nothing.
    """

    name: str
    path: str
    help: str
    asks: type[msgspec.Struct]
    answers: type[shapes.Shape]
    _run: Run = field(repr=False)
    example: Mapping[str, Any] = field(factory=dict)
    form: OperationForm | None = None

    async def run(self, by: Administrator, asked: Any) -> shapes.Shape:
        """Do it; the answer."""
        return await self._run(by, *structs.astuple(asked)) or shapes.Done()

    @property
    def method(self) -> str:
        return "POST" if self.form else "GET"

    @property
    def final(self) -> bool:
        """Whether nobody can undo it, so that pages and commands ask once more."""
        return self.form is not None and bool(self.form.question)


def operation(
    path: str, form: OperationForm | None = None, **example: Any
) -> Callable[[Run], Operation]:
    """Make an operation of a function.

    Its name is that of the function, its help is the docstring, and what it takes and answers are
    the arguments after the first, and the result.  A ``_`` at the end of an argument's name tells
    it from a name of Python.

    :param example: an example of what it takes.
    """

    def make(run: Run) -> Operation:
        types = get_type_hints(run, include_extras=True)
        answers = shapes.Done if types["return"] is NoneType else types["return"]
        name = run.__name__.replace("_", "-")
        fields: list[tuple[str, Any, Any]] = []
        _, *takes = signature(run).parameters.values()
        for each in takes:
            default = NODEFAULT if each.default is each.empty else each.default
            fields.append((each.name.rstrip("_"), types[each.name], default))
        asks = msgspec.defstruct(
            name, fields, frozen=True, kw_only=True, forbid_unknown_fields=True
        )
        return Operation(name, path, getdoc(run) or "", asks, answers, run, example, form)

    return make
