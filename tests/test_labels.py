"""Labels of periods in all outputs: what reads one as a date must fail, and not take another month."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator

import pytest

from asyncfin import Client, Exact, FiscalRange, Panel, Period, Quarterly, Select, SelectionError, concat
from asyncfin.sandbox import Sandbox
from tests.cli.conftest import environment
from tests.handmade import ENTITY_ID, dataset

pandas = pytest.importorskip("pandas")

# One period of each kind of label, and of each kind of gap.
PERIODS = [
    *(Period(2020, month, 3) for month in (3, 6, 12)),
    *(Period(2020, month, 6) for month in (6, 12)),
    Period(2020, 9, 9),
    Period(2020, 12, 12),
    Period(2022, 12, 12),
    Period(2020, 11, 5),
    Period(2020, 12, 0),
    Period(2020, 12, 120),
]
KINDS = {"FY2020", "FY2020-Q1", "FY2020-H2", "FY2020-9M", "FY2020-11-05M", "FY2020-12-120M"}


def labels_in(text: str) -> set[str]:
    """Return the words that are labels of periods or fiscal months, with or without FY."""
    words = re.findall(r"(?<![\w:.-])(?:FY)?\d{4}(?:-[\w-]+)?(?![\w-])", text)
    found = set()
    for word in words:
        month = re.fullmatch(r"(?:FY)?\d{4}-(?:0[1-9]|1[0-2])", word)
        try:
            Period.parse(word)
        except SelectionError:
            if not month:
                continue
        found.add(word)
    return found


def refuse_dates(text: str, *kinds: str) -> None:
    """Check that no label in a text is a date to pandas, and that the text has labels of these kinds."""
    found = labels_in(text)
    assert found >= set(kinds)
    for label in found:
        with pytest.raises(ValueError):
            pandas.Period(label)


@pytest.fixture
async def service() -> AsyncIterator[Sandbox]:
    numbers = {("Revenue", "all"): {period.label: 5.0 for period in PERIODS}}
    async with Sandbox(dataset(numbers)) as sandbox:
        yield sandbox


@pytest.fixture
async def panel(service: Sandbox) -> Panel:
    async with Client(service.base_url, service.token) as client:
        return await client.query(ENTITY_ID, Select(), FiscalRange())


def test_what_pandas_reads_as_a_date_would_be_found() -> None:
    """The form without FY is read as a calendar quarter."""
    assert pandas.Period("2027-Q1").start_time.month == 1
    assert labels_in("periods 2027-Q1 to FY2027, from FY2024-09 or 2024-09") == {
        "2027-Q1", "FY2027", "FY2024-09", "2024-09",
    }  # fmt: skip
    with pytest.raises(pytest.fail.Exception):
        refuse_dates("2027-Q1")


def test_no_label_of_a_table_is_a_date(panel: Panel) -> None:
    long = panel.to_arrow()
    wide = panel.to_arrow("wide", labels=True)
    joined = concat([panel], labels=True, columns=["period_label"]).to_pandas()
    for table in (long["period_label"].to_pylist(), wide["period"].to_pylist(), joined["period_label"]):
        refuse_dates("\n".join(table), *KINDS)


def test_no_label_of_a_text_is_a_date(panel: Panel) -> None:
    refuse_dates(str(panel) + panel._repr_html_(), "FY2020", "FY2020-Q1")
    refuse_dates(str(panel.one()) + repr(panel.one().values) + str(panel.gaps))
    refuse_dates(str(panel.catalogue) + panel.catalogue._repr_html_(), "FY2022")


def test_no_label_of_an_axis_is_a_date(panel: Panel) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    ax = panel.during(Exact(["FY2020", "FY2022"])).plot()
    ax.figure.canvas.draw()
    refuse_dates("\n".join(each.get_text() for each in ax.get_xticklabels()), "FY2020")


@pytest.mark.parametrize(
    "refused",
    [
        lambda panel: panel.during("2030-Q1"),
        lambda panel: panel.catalogue.resolve(Quarterly((2030, 4), (2030, 9))),
        lambda panel: FiscalRange((2021, 4), (2020, 9)),
        lambda panel: Period.parse("1Q23"),
        lambda panel: Exact(["2020-Q1", "FY2020-Q1"]),
    ],
)
def test_no_label_or_fiscal_month_of_an_error_is_a_date(panel: Panel, refused) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SelectionError) as caught:
        refused(panel)
    text = str(caught.value).replace("not '1Q23'", "")
    assert labels_in(text)
    refuse_dates(text)


@pytest.mark.parametrize(
    "options", [["--csv"], ["--explain"], [], ["--from", "2020-04", "--to", "FY2020-10"]]
)
async def test_no_label_that_a_command_prints_is_a_date(service: Sandbox, options: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asyncfin", "query", ENTITY_ID, *options),
        env=environment(service),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    text = out.decode()
    assert process.returncode == 0
    # The time of the publication is not a period.
    text = text.replace("2025-02-01", "")
    assert labels_in(text) or options == ["--explain"]
    refuse_dates(text)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
async def test_no_label_of_a_tool_is_a_date_and_both_forms_are_read(service: Sandbox) -> None:
    from tests.mcp.assistant import assistant, text_of

    async with assistant(service, offered={ENTITY_ID: "Example"}) as call:
        every = await call("query", entities="Example", series="Revenue", periods="all periods")
        short = await call("query", entities="Example", series="Revenue", periods="2020-Q1, 2020-11-05M")
    refuse_dates(text_of(every).replace("2025-02-01", ""), *KINDS)
    assert list(short.structured_content["rows"][0]["values"]) == ["FY2020-Q1", "FY2020-11-05M"]


def test_a_label_without_its_fy_is_read_wherever_a_label_is_read(panel: Panel) -> None:
    """A period with its FY is the same; nothing warns."""
    (series,) = panel
    for short in ("2020-Q1", "2020-H2", "2020-9M", "2020-11-05M"):
        label = f"FY{short}"
        assert short in panel.periods
        assert panel.periods.index(short) == panel.periods.index(label)
        assert series[short] is series[label]
        assert panel.covers(short)
        assert panel.during(short).periods == panel.during(label).periods
        assert panel.why(series.series_id, short) is None
    assert FiscalRange("2020-Q2", "2020-Q2") == FiscalRange("FY2020-Q2", "FY2020-Q2")
    assert "2020" not in panel.periods
