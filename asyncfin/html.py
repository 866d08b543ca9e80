"""HTML for notebooks: lines of text, tables, and notes below them. No other module
writes markup.
"""

from collections.abc import Iterable, Sequence
from html import escape

from attrs import frozen

from asyncfin.errors import printable, shorten

# Notebooks align all cells to the right, and break long names into a word a line.
_NAME = '<th style="text-align: left; min-width: 12em">'

# How much of a text a cell shows; a line, ten times as much.
_LONGEST = 1_000


@frozen
class Table:
    """A table whose first `names` columns name its rows; the others hold figures."""

    heads: Sequence[str]  # the titles of the columns
    rows: Sequence[Sequence[str]]  # a text for each column
    names: int = 1
    caption: str = ""  # what holds for all rows


def document(
    lines: Iterable[str], tables: Iterable[Table], notes: Iterable[str] = ()
) -> str:
    """Return lines, tables and notes as HTML. Every text is escaped: none of the
    service's is markup.

    Nor is one a formula: notebooks would have MathJax typeset what is between two
    dollar signs.
    """
    parts = [
        _write_paragraph(lines),
        *map(_write_table, tables),
        _write_paragraph(notes),
    ]
    return f'<div class="tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>'


def _write_paragraph(lines: Iterable[str]) -> str:
    text = "<br>".join(_text(shorten(line, 10 * _LONGEST)) for line in lines)
    return f"<p>{text}</p>" if text else ""


def _write_table(table: Table) -> str:
    """Return a table that scrolls where it is wider than the page."""
    caption = (
        f'<caption style="text-align: left">{_text(table.caption)}</caption>'
        if table.caption
        else ""
    )
    heads = _write_cells(table.heads, table.names, "th")
    rows = "".join(
        f"<tr>{_write_cells(row, table.names, 'td')}</tr>" for row in table.rows
    )
    table_html = (
        f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )
    return f'<div style="overflow-x: auto">{table_html}</div>'


def _write_cells(texts: Sequence[str], names: int, element: str) -> str:
    """Return the cells of a row: names left-aligned in wide columns, figures as
    notebooks align them.
    """
    # A label of the service can have a megabyte.
    cells = [_text(shorten(text, _LONGEST)) for text in texts]
    name_cells = [f"{_NAME}{cell}</th>" for cell in cells[:names]]
    figures = [f"<{element}>{cell}</{element}>" for cell in cells[names:]]
    return "".join(name_cells + figures)


def _text(text: str) -> str:
    # Both: markup could do something to the page, and a mark of direction to what is
    # read there.
    return escape(printable(text))
