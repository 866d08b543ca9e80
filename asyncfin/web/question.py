"""A visitor's form as a question, and the Python that asks the same."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from asyncfin.errors import SelectionError
from asyncfin.model.period import Annual, FiscalRange, PeriodSelection, Quarterly, Trailing
from asyncfin.model.query import ValueVersion
from asyncfin.model.select import Select

RULES = {
    "annual": "the last fiscal years",
    "quarterly": "the last fiscal quarters",
    "trailing": "the last months, all durations",
    "range": "fiscal years from ... to ...",
    "all": "all periods",
}
VERSIONS: dict[ValueVersion, str] = {"original": "as first reported", "latest_restated": "as last restated"}


@frozen
class Question:
    """A visitor's question about one company.

    Attributes:
        series_ids: the series chosen, in the order of the form.
        rule: one of `RULES`.
        last: the number of years, quarters or months.
        start, end: the fiscal years of a range, as typed; empty: the catalogue's own.
        search: the words of the search box.
    """

    series_ids: tuple[str, ...] = ()
    rule: str = "annual"
    last: str = "5"
    start: str = ""
    end: str = ""
    value_version: ValueVersion = "original"
    search: str = ""

    @classmethod
    def of(cls, form: Mapping[str, Sequence[str]]) -> "Question":
        """Return the question of a form's fields.

        Raises:
            SelectionError: there is no such value version.
        """

        def text(name: str, default: str = "") -> str:
            return form.get(name, [default])[-1]

        wanted = text("value_version", "original")
        version = next((version for version in VERSIONS if version == wanted), None)
        if version is None:
            raise SelectionError(f"value_version must be one of {', '.join(VERSIONS)}, not {wanted!r}")
        return cls(
            tuple(dict.fromkeys(form.get("series", ()))),
            text("rule", "annual"),
            text("last", "5"),
            text("start"),
            text("end"),
            version,
            text("search"),
        )

    @property
    def select(self) -> Select:
        """The series chosen.

        Raises:
            SelectionError: no series is chosen.
        """
        if not self.series_ids:
            raise SelectionError("no series is chosen: tick one or more in the tree")
        return Select(series_ids=self.series_ids)

    @property
    def periods(self) -> PeriodSelection:
        """The periods asked for.

        Raises:
            SelectionError: a number is missing or wrong, or there is no such rule.
        """
        match self.rule:
            case "annual":
                return Annual(last=_whole("how many years", self.last))
            case "quarterly":
                return Quarterly(last=_whole("how many quarters", self.last))
            case "trailing":
                return Trailing(_whole("how many months", self.last))
            case "range":
                start = (_whole("the first fiscal year", self.start), 1) if self.start.strip() else None
                end = (_whole("the last fiscal year", self.end), 12) if self.end.strip() else None
                return FiscalRange(start, end)
            case "all":
                return FiscalRange()
        raise SelectionError(f"there is no period rule {self.rule!r}: choose one of {', '.join(RULES)}")

    def python(self, entity_id: str) -> str:
        """Return a program that asks the same and prints the same texts. It holds no token."""
        periods = self._periods_code()
        names = ", ".join(sorted(["Client", "Select", periods.partition("(")[0]]))
        version = "" if self.value_version == "original" else f", value_version={self.value_version!r}"
        # As Python writes them: ids come from a form, and nothing of it may become code.
        ids = "".join(f"\n    {series_id!r}," for series_id in self.series_ids)
        return f"""import asyncio
from asyncfin import {names}

select = Select(series_ids=[{ids}
])

async def main():
    async with Client.from_env() as client:
        panel = await client.query({entity_id!r}, select, {periods}{version})
    print("", *panel.periods, sep="\\t")
    for series in panel:
        print(series.series_id, *(value.text if value else "" for value in series.values), sep="\\t")

asyncio.run(main())
"""

    def _periods_code(self) -> str:
        match self.periods:
            case Annual(last=last):
                return f"Annual(last={last})"
            case Quarterly(last=last):
                return f"Quarterly(last={last})"
            case Trailing(months=months):
                return f"Trailing({months})"
            case FiscalRange(start=start, end=end):
                given = ((name, at) for name, at in (("start", start), ("end", end)) if at is not None)
                ends = ", ".join(f"{name}=({at.year}, {at.end_month})" for name, at in given)
                return f"FiscalRange({ends})"
        raise AssertionError("every rule is written as code")


def _whole(name: str, text: str) -> int:
    # Python refuses to read numbers of thousands of digits, and no year or count has ten.
    if not (text.strip().isascii() and text.strip().isdigit() and len(text) < 10):
        raise SelectionError(f"{name} must be a whole number of at most nine digits, not {text[:20]!r}")
    return int(text)
