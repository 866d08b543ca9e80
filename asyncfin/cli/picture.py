"""`asyncfin query --plot`: a picture of panels."""

import os
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from matplotlib.backend_bases import FigureCanvasBase

from asyncfin import Comparison, Panel
from asyncfin.cli.exits import UsageError
from asyncfin.cli.output import replace_file, screen
from asyncfin.errors import SelectionError


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


def draw(result: Panel | Comparison, file: Path) -> None:
    """Draw the series into a file."""
    try:
        figure: Any = result.plot().figure
    except SelectionError as error:
        raise UsageError(str(error)) from None
    try:
        form = file.suffix.lower()[1:]
        replace_file(file, lambda stream: figure.savefig(stream, dpi=150, format=form))
    finally:
        pyplot.close(figure)
    screen().print(f"wrote {file}")
