"""A table that never breaks words: on a narrow terminal, each row takes several lines."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

_GAP = 2
_INDENT = 4


class FittedTable(Table):
    """A table whose columns are at least as wide as their longest word.

    On a terminal that is narrower, a row is one line with its first cells, followed by lines with the other cells, each after
    the title of its column.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        _, right, _, left = self.padding
        spare = options.max_width - (left + right) * len(self.columns) - sum(map(_least_width, self.columns))
        if spare >= 0:
            # The sum of the widths that Rich computes may exceed the terminal, so that it would cut lines.
            for column in sorted(self.columns, key=_whole_width):
                least = _least_width(column)
                column.width = least + min(spare, _whole_width(column) - least)
                spare -= column.width - least
            yield from super().__rich_console__(console, options)
            return
        titles = [_text(c.header).plain for c in self.columns]
        for cells in zip(*(c.cells for c in self.columns), strict=True):
            row = [_text(cell) for cell in cells]
            first = _in_first_line(row, options.max_width)
            yield Text("  ").join(cell if cell.plain or i else Text(" ") for i, cell in enumerate(row[:first]))
            rest = [(t, c) for t, c in zip(titles[first:], row[first:], strict=True) if c.plain]
            facts = [Text.assemble((f"{title} ", "dim"), cell) if title else cell for title, cell in rest]
            if facts:
                yield Padding(Text("; ").join(facts), (0, 0, 0, _INDENT))


def _in_first_line(row: list[Text], width: int) -> int:
    """Return the number of cells for the first line: as many as fit, from one to three."""
    count, used = 1, row[0].cell_len
    while count < min(3, len(row)) and used + _GAP + row[count].cell_len <= width:
        used += _GAP + row[count].cell_len
        count += 1
    return count


def _least_width(column: Column) -> int:
    """Return the width of the longest word, or of the longest cell of a column that does not wrap."""
    texts = [_text(x).plain for x in (column.header, *column.cells)]
    parts = texts if column.no_wrap else [word for text in texts for word in text.split()]
    return max(map(cell_len, parts), default=0)


def _whole_width(column: Column) -> int:
    """Return the width of the longest cell, the title included, on one line."""
    return max((line.cell_len for x in (column.header, *column.cells) for line in _text(x).split()), default=0)


def _text(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))
