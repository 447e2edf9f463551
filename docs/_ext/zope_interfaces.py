"""Shows the zope interfaces of a module, which autodoc passes over since they are no classes.

``.. interfaces:: MODULE`` documents each public interface of a module, in the order of the
source: its base interfaces, its docstring, and every attribute and method.  Signatures come
from the source with their types, which zope.interface does not keep.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from textwrap import indent
from typing import ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyClasslike
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata
from zope.interface.interface import InterfaceClass


class InterfaceDescription(PyClasslike):
    """``.. py:interface::``: what Sphinx knows as a class, but shows as an interface."""

    def run(self) -> list[nodes.Node]:
        self.name = "py:class"
        return super().run()

    def get_signature_prefix(self, sig: str) -> list[nodes.Node]:
        """What stands before the name."""
        return [addnodes.desc_sig_keyword("", "interface"), addnodes.desc_sig_space()]


class Interfaces(SphinxDirective):
    """``.. interfaces:: MODULE``."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        module = import_module(self.arguments[0])
        self.env.note_dependency(inspect.getfile(module))
        lines = [f".. py:currentmodule:: {module.__name__}", ""]
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                interface = getattr(module, node.name)
                if isinstance(interface, InterfaceClass):
                    lines.extend(_of_interface(interface, node))
        return self.parse_text_to_nodes("\n".join(lines))


def _of_interface(interface: InterfaceClass, node: ast.ClassDef) -> Iterator[str]:
    """The reStructuredText of an interface."""
    bases = [ast.unparse(base) for base in node.bases if ast.unparse(base) != "Interface"]
    yield f".. py:interface:: {node.name}" + (f"({', '.join(bases)})" if bases else "")
    yield ""
    yield _text(interface.__doc__)
    for member in node.body:
        if isinstance(member, ast.FunctionDef):
            returns = f" -> {ast.unparse(member.returns)}" if member.returns else ""
            heading = f".. py:method:: {member.name}({ast.unparse(member.args)}){returns}"
            name = member.name
        elif isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name):
            name = member.targets[0].id
            heading = f".. py:attribute:: {name}"
        else:
            continue
        yield f"   {heading}\n"
        yield indent(_text(interface[name].__doc__), "   ")


def _text(docstring: str | None) -> str:
    """A docstring as the content of a directive."""
    return indent(inspect.cleandoc(docstring or ""), "   ") + "\n"


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directives."""
    app.add_directive_to_domain("py", "interface", InterfaceDescription)
    app.add_directive("interfaces", Interfaces)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
