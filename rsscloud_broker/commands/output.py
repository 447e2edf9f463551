"""What commands write: tables, and nothing more once nobody reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print a table, whose first row has the headings, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def write_no_more() -> None:
    """Discard all further output, after the reader of stdout has closed the pipe.

    Otherwise Python would report an error at exit, when it flushes its buffer.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
