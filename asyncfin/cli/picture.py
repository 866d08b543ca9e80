"""`asyncfin query --plot`: a picture of panels."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from matplotlib.backend_bases import FigureCanvasBase

from asyncfin.cli.exits import UsageError
from asyncfin.cli.output import replace_file, screen
from asyncfin.errors import SelectionError
from asyncfin.table import plot
from asyncfin.table.panel import Panel


def check_picture(file: Path) -> None:
    """Refuse, before a request is spent, a file that could not be written."""
    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if file.suffix.lower()[1:] not in known:
        raise UsageError(
            f"--plot {file} must end in one of .{', .'.join(known)}: the suffix "
            "chooses the format"
        )
    if file.is_dir():
        raise UsageError(f"--plot {file} can't be written: it is a folder")
    if not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
        raise UsageError(
            f"--plot {file} can't be written: {file.parent} is not a folder to write to"
        )


def draw(panels: Sequence[Panel], file: Path) -> None:
    """Draw the series of panels into a file, and say so."""
    try:
        figure: Any = plot.plot(panels).figure
    except plot.TooManyLinesError as error:
        raise UsageError(
            f"a plot must have at most {plot.MOST_LINES} lines, one for each series "
            "and duration, not"
            f" {error.lines}: narrow it with --metric, --basis, --scope or --cadence"
        ) from None
    except SelectionError as error:
        raise UsageError(str(error)) from None
    try:
        form = file.suffix.lower()[1:]
        replace_file(file, lambda stream: figure.savefig(stream, dpi=150, format=form))
    finally:
        pyplot.close(figure)
    screen().print(f"wrote {file}")
