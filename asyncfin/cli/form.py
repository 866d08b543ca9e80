"""The forms in which commands print results: tables for people, and others."""

from pathlib import Path
from typing import Annotated

from attrs import frozen
from cyclopts import Parameter

from asyncfin.checks import local_path
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsCsv, AsJson, AsRawCsv, choose_one, require
from asyncfin.model.words import Unit


@Parameter(name="*")
@frozen(kw_only=True)
class Form:
    """The form of what a query returns."""

    all: Annotated[bool, Parameter(help="Show series without a value too, in the table and in CSV.")] = False
    unit: Annotated[Unit | None, Parameter(help="Divide the whole numbers of the table.")] = None
    explain: Annotated[
        bool,
        Parameter(
            help="Print only the plan: series, batches, requests. Reads the catalogue, sends no query."
        ),
    ] = False
    json: AsJson = False
    csv: AsCsv = False
    csv_raw: AsRawCsv = False
    plot: Annotated[
        Path | None, Parameter(help="Draw the series into this file instead: .png, .pdf, .svg")
    ] = None

    def chosen(self) -> str | None:
        """Return the option of another form than the table, if one is given; refuse several."""
        forms = {"--json": self.json and not self.explain, "--csv": self.csv, "--csv-raw": self.csv_raw}
        form = choose_one(forms | {"--explain": self.explain, "--plot": self.plot is not None})
        if form and self.unit is not None:
            raise UsageError(f"--unit is for the table, and {form} prints none: leave out one of them")
        if self.plot is not None:
            require("matplotlib", "plot", "--plot")

            from asyncfin.cli.picture import check_picture

            check_picture(self.plot)
        return form


@Parameter(name="*")
@frozen(kw_only=True)
class FeedForm:
    """The form of rows of a change feed."""

    json: AsJson = False
    csv: AsCsv = False
    csv_raw: AsRawCsv = False
    to: Annotated[Path | None, Parameter(help="Write the rows to this Parquet file.")] = None

    def __attrs_post_init__(self) -> None:
        choose_one(
            {"--json": self.json, "--csv": self.csv, "--csv-raw": self.csv_raw, "--to": self.to is not None}
        )
        if self.to is not None and self.to.suffix != ".parquet":
            raise UsageError(f"--to must be the path of a .parquet file, not {self.to}")
        if self.to is not None:
            local_path("--to", "file", self.to, "copy it there from here")
            if not self.to.parent.is_dir():
                raise UsageError(f"--to {self.to} can't be written: {self.to.parent} is not a folder")
