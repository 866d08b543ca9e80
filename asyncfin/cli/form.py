"""The forms in which commands print results: tables for people, and others."""

from pathlib import Path
from typing import Annotated

from attrs import frozen
from cyclopts import Parameter

from asyncfin.checks import local_path
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import choose_one, require
from asyncfin.words import Unit


@Parameter(name="*")
@frozen(kw_only=True)
class Form:
    """A form that a program reads, in place of a table for people."""

    json: Annotated[bool, Parameter(name="--json", help="Print JSON instead.")] = False
    csv: Annotated[
        bool,
        Parameter(
            name="--csv",
            help="Print comma-separated lines. Texts like formulas get a leading "
            "apostrophe.",
        ),
    ] = False
    csv_raw: Annotated[
        bool, Parameter(name="--csv-raw", help="The same, with every text unchanged.")
    ] = False

    def __attrs_post_init__(self) -> None:
        choose_one(self.options())

    def options(self) -> dict[str, bool]:
        """Return the options that exclude each other, and whether each is given."""
        return {"--json": self.json, "--csv": self.csv, "--csv-raw": self.csv_raw}

    @property
    def is_csv(self) -> bool:
        return self.csv or self.csv_raw


@Parameter(name="*")
@frozen(kw_only=True)
class QueryForm(Form):
    """The form of what a query returns."""

    all: Annotated[
        bool,
        Parameter(help="Show series without a value too, in the table and in CSV."),
    ] = False
    unit: Annotated[Unit | None, Parameter(help="Divide the amounts of the table.")] = (
        None
    )
    explain: Annotated[
        bool,
        Parameter(
            help="Print only the plan: series, batches, requests. Reads the catalogue, "
            "sends no query."
        ),
    ] = False
    plot: Annotated[
        Path | None,
        Parameter(help="Draw the series into this file instead: .png, .pdf, .svg"),
    ] = None

    def __attrs_post_init__(self) -> None:
        if self.unit is not None and (other := choose_one(self.options())):
            raise UsageError(
                f"--unit is for the table, and {other} prints none: leave out one of "
                "them"
            )
        super().__attrs_post_init__()

    def options(self) -> dict[str, bool]:
        return {
            **super().options(),
            "--json": self.json and not self.explain,  # of a plan
            "--explain": self.explain,
            "--plot": self.plot is not None,
        }

    def check(self) -> None:
        """Refuse, before a request is spent, a picture that could not be drawn or
        written.
        """
        if self.plot is not None:
            require("matplotlib", "plot", "--plot")

            from asyncfin.cli.picture import check_picture

            check_picture(self.plot)


@Parameter(name="*")
@frozen(kw_only=True)
class FeedForm(Form):
    """The form of rows of a change feed."""

    to: Annotated[
        Path | None, Parameter(help="Write the rows to this Parquet file.")
    ] = None

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.to is None:
            return
        if self.to.suffix != ".parquet":
            raise UsageError(f"--to must be the path of a .parquet file, not {self.to}")
        local_path("--to", "file", self.to, "copy it there from here")
        if not self.to.parent.is_dir():
            raise UsageError(
                f"--to {self.to} can't be written: {self.to.parent} is not a folder"
            )

    def options(self) -> dict[str, bool]:
        return {**super().options(), "--to": self.to is not None}
