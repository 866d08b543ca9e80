"""The gaps of a panel: which periods are missing in between, and where they are shown."""

from collections.abc import Sequence

from asyncfin.model.period import Period
from asyncfin.model.selection import Annual, Exact, FiscalRange, Quarterly, Resolved
from asyncfin.table.panel import Panel
from tests.answers import EVER, Stitched, catalogue_of, encoded, page_json, panel_of

QUARTERS = [Period(year, month, 3) for year in (2023, 2024, 2025) for month in (3, 6, 9, 12)]
YEARS = [Period(year, 12, 12) for year in range(2015, 2026)]
Q2 = Period.parse("FY2024-Q2")
WITHOUT_Q2 = [each for each in QUARTERS if each != Q2]


def of(*labels: str) -> tuple[Period, ...]:
    return tuple(map(Period.parse, labels))


async def at(observed: Sequence[Period], listed: Sequence[Period], asked: Resolved = EVER) -> Panel:
    """Return a panel of one series with a value at each observed period."""
    numbers = {"sales.quarterly": {period: number for number, period in enumerate(observed, 1)}}
    return await panel_of(numbers, observed, listed=listed, asked=asked)


async def test_a_cut_narrows_the_periods_asked() -> None:
    """What a panel no longer has must not look like what the service does not have."""
    panel = await at(of("FY2023-Q1", "FY2023-Q2", "FY2023-Q4", "FY2025-Q1"), QUARTERS)
    assert panel.during(FiscalRange()).periods_asked == panel.periods_asked == tuple(QUARTERS)
    for cut, away in (
        (["FY2023-Q1", "FY2023-Q4"], of("FY2023-Q2", "FY2025-Q1")),
        (FiscalRange(2023, 2023), of("FY2025-Q1")),
        (Quarterly(last=2), of("FY2023-Q1", "FY2023-Q2")),
        (Annual(), panel.periods),
    ):
        shorter = panel.during(cut)  # type: ignore[arg-type]
        assert shorter.periods_asked == tuple(each for each in QUARTERS if each not in away)
    assert panel.during(["FY2023-Q1", "FY2023-Q4"]).gaps == of("FY2023-Q3")
    exact = await at([], QUARTERS, Exact(of("FY2023-Q1", "FY2023-Q2")))
    assert exact.during("FY2023-Q1").periods_asked == of("FY2023-Q1")


async def test_quarter_without_values_is_a_gap() -> None:
    """It is named, counted as cells, and a row of the wide frame: four rows are a year again."""
    panel = await at(WITHOUT_Q2, WITHOUT_Q2)
    assert panel.gaps == (Q2,)
    assert Q2 not in panel.periods
    assert len(panel["sales.quarterly"].values) == panel.to_numpy().shape[1] == 11
    assert "\n1 gap, where no series has a value: FY2024-Q2" in str(panel)
    assert ": 11 values" in str(panel)
    wide = panel.to_arrow("wide")
    assert wide["sales.quarterly"].to_pylist() == [1, 2, 3, 4, 5, None, 6, 7, 8, 9, 10, 11]
    sums = panel.to_pandas("wide")["sales.quarterly"].rolling(4).sum()
    assert sums.isna().sum() == 3 + 4
    labelled = panel.to_pandas("wide", labels=True)
    assert list(labelled.index) == [period.label for period in QUARTERS]
    assert labelled.loc["FY2024-Q2"].isna().all()


async def test_uneven_distances_are_named() -> None:
    """A fiscal year that was shortened moves all quarters after it; the gap lies a step after the earlier."""
    moved = [*of("FY2023-Q1", "FY2023-Q2", "FY2023-Q3"), Period(2024, 2, 3), Period(2024, 3, 3)]
    panel = await at(moved, moved)
    assert panel.gaps == of("FY2023-Q4")
    first, second = moved[2:4], moved[3:5]
    assert panel.notes[1] == f"uneven distances: {first[0]} to {first[1]}, {second[0]} to {second[1]}"


async def test_long_runs_are_only_named() -> None:
    """One lone quarter long ago does not fill a table with empty rows."""
    listed = [Period(2010, 3, 3), *QUARTERS]
    panel = await at(listed, listed)
    assert len(panel.gaps) == 51
    assert panel.to_arrow("wide").num_rows == 13
    assert "51 gaps, where no series has a value: FY2010-Q2 to FY2022-Q4" in str(panel)
    shorter = [Period(2012, 12, 3), *QUARTERS]
    panel = await at(shorter, shorter)
    assert len(panel.gaps) == 40
    assert panel.to_arrow("wide").num_rows == 53


async def test_piece_of_stream_has_no_gaps() -> None:
    """What it does not have, another piece may have; the periods of the question are the whole's."""
    catalogue = catalogue_of(["a.quarterly", "b.quarterly"], QUARTERS)
    stitched = Stitched(catalogue, catalogue.series, EVER)
    numbers = {"a.quarterly": {QUARTERS[0]: 1, QUARTERS[2]: 2}, "b.quarterly": {QUARTERS[1]: 3}}
    await stitched.add(encoded(page_json(QUARTERS, numbers)), home=frozenset(numbers), asked=EVER)
    piece = stitched.stitch.panel(stitched.blocks, catalogue.series[:1], is_whole=False)
    assert piece.gaps == piece.notes == ()
    assert piece.periods_asked == tuple(QUARTERS)


async def test_unlisted_period_makes_no_gap() -> None:
    """A mistaken period among good ones is named, and the years up to it are no gaps."""
    years = of("FY2020", "FY2021", "FY2022")
    panel = await at(years, years, Exact([*years, Period(2034, 12, 12)]))
    assert panel.gaps == ()
    assert panel.notes == ("no data for FY2034",)
