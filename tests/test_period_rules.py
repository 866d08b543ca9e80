"""Each rule for periods means the same in all rooms: in a question, a cut, an extraction and every face."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pyarrow.parquet
import pytest

import asyncfin
from asyncfin import (
    Annual,
    ArgumentError,
    Client,
    Exact,
    FiscalRange,
    HalfYearly,
    Period,
    Quarterly,
    Select,
    Trailing,
    extract,
)
from asyncfin.cli.app import run
from asyncfin.sandbox import Sandbox
from asyncfin.typing import RULES, Rule
from tests.cli.conftest import serving, set_environment
from tests.handmade import dataset

Key = tuple[int, int, int]

ONE, OTHER = "O-" + "1" * 32, "O-" + "2" * 32
# Year, end month and length. Some half-years, and a year of the other company, end in unusual months.
PERIODS: dict[str, list[Key]] = {
    ONE: [
        *((2022, month, 3) for month in (3, 6, 9, 12)),
        *((year, month, 6) for year in (2021, 2022, 2023) for month in (6, 12)),
        (2023, 3, 6),
        (2022, 9, 9),
        (2021, 12, 12),
        (2022, 12, 12),
        (2022, 12, 0),
    ],
    OTHER: [(2022, 2, 3), (2024, 6, 6), (2024, 12, 6), (2023, 12, 12), (2024, 12, 12), (2024, 11, 12)],
}
LENGTHS = {"annual": 12, "quarterly": 3, "half-yearly": 6}
CLASSES: dict[str, type[Rule]] = {"annual": Annual, "quarterly": Quarterly, "half-yearly": HalfYearly}
QUESTIONS = [(name, last) for name in LENGTHS for last in (None, 1, 2)]
SELECT = Select("Revenue")


def oracle(name: str, last: int | None, *entities: str) -> list[Key]:
    """Return the periods that a rule means over the catalogues of entities, oldest first."""
    known = sorted({key for each in entities for key in PERIODS[each]})
    meant = [key for key in known if key[2] == LENGTHS[name] and (key[2] != 12 or key[1] == 12)]
    return meant[-last:] if last else meant


def number(key: Key) -> float:
    return float(key[0] * 10_000 + key[1] * 100 + key[2])


def document(entity_id: str) -> dict[str, object]:
    numbers = {Period(*key).label: number(key) for key in PERIODS[entity_id]}
    return dataset({("Revenue", "all"): numbers}, entity_id=entity_id)


@pytest.fixture
async def service() -> AsyncIterator[Sandbox]:
    async with Sandbox(document(ONE), document(OTHER)) as sandbox:
        yield sandbox


@pytest.fixture
async def client(service: Sandbox) -> AsyncIterator[Client]:
    async with Client(service.base_url, service.token) as client:
        yield client


def keys(panel: asyncfin.Panel) -> list[Key]:
    """Return the periods of a panel, whose values are checked."""
    for period, value in panel.one().observations():
        assert value.number == number((period.year, period.end_month, period.duration_months))
    return [(each.year, each.end_month, each.duration_months) for each in panel.periods]


def test_the_names_of_the_rules_are_those_of_the_faces() -> None:
    """A further rule needs a row in this file."""
    assert RULES == CLASSES
    assert {rule.name: rule.months for rule in RULES.values()} == LENGTHS


@pytest.mark.parametrize(("name", "last"), QUESTIONS)
async def test_a_question_a_cut_and_a_resolved_rule_mean_the_same_periods(
    client: Client, name: str, last: int | None
) -> None:
    rule = CLASSES[name](last=last)
    panel = await client.query(ONE, SELECT, rule)
    assert keys(panel) == oracle(name, last, ONE)
    assert panel.during(CLASSES[name](last=1)).periods == panel.periods[-1:]
    whole = await client.query(ONE, SELECT, FiscalRange())
    assert keys(whole.during(rule)) == oracle(name, last, ONE)
    resolved = rule.resolve(await client.catalogue(ONE))
    assert [(each.year, each.end_month, each.duration_months) for each in resolved.periods] == keys(panel)


@pytest.mark.parametrize(("name", "last"), QUESTIONS)
def test_a_rule_is_resolved_over_the_catalogues_of_several_companies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, last: int | None
) -> None:
    """In the library by `resolve`, and by the command for a question to several."""
    union = oracle(name, last, ONE, OTHER)

    async def resolved() -> Exact:
        async with Client(sandbox.base_url, sandbox.token) as client:
            return CLASSES[name](last=last).resolve([await client.catalogue(each) for each in (ONE, OTHER)])

    limit = [] if last is None else ["--last", str(last)]
    with serving(document(ONE), document(OTHER)) as sandbox:
        assert asyncio.run(resolved()) == Exact([Period(*key) for key in union])
        set_environment(monkeypatch, sandbox)
        code = run(["query", ONE, OTHER, "--metric", "Revenue", f"--{name}", *limit, "--json"])
    assert code == 0
    found = json.loads(capsys.readouterr().out)
    panels = found["panels"] if isinstance(found, dict) else found
    # A company that has none of them has a panel without periods.
    assert [[tuple(each.values()) for each in panel["periods"]] for panel in panels] == [
        union if set(union).intersection(PERIODS[entity_id]) else [] for entity_id in (ONE, OTHER)
    ]


@pytest.mark.parametrize(("name", "last"), QUESTIONS)
async def test_an_extraction_has_the_periods_of_the_rule(
    client: Client, tmp_path: Path, name: str, last: int | None
) -> None:
    await extract(client, [ONE], SELECT, CLASSES[name](last=last), to=tmp_path / "night")
    rows = pyarrow.parquet.read_table(tmp_path / "night" / f"{ONE}.parquet").to_pylist()
    found = [(row["year"], row["end_month"], row["duration_months"]) for row in rows]
    assert found == oracle(name, last, ONE)


@pytest.mark.parametrize("name", LENGTHS)
async def test_a_feed_takes_a_rule_without_last_only(client: Client, tmp_path: Path, name: str) -> None:
    """The latest ones move with each new period: an old one would count as vanished."""
    to = tmp_path / "night"
    with pytest.raises(ArgumentError, match="history needs periods that stay"):
        await extract(client, [ONE], SELECT, CLASSES[name](last=2), to=to, history=True)
    assert not to.exists()
    report = await extract(client, [ONE], SELECT, CLASSES[name](), to=to, history=True)
    assert len(report.done) == 1


@pytest.mark.parametrize("name", LENGTHS)
async def test_the_explorer_shows_the_last_periods_of_a_rule(client: Client, name: str) -> None:
    httpx = pytest.importorskip("httpx")
    from asyncfin.web import explorer
    from tests.web.conftest import OWN

    transport = httpx.ASGITransport(app=explorer(client, [ONE]))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8766") as browser:
        page = (await browser.get(f"/company/{ONE}")).text
        fields = {"series": "Revenue/all/company=all", "rule": name, "last": "2"}
        answer = await browser.post(f"/company/{ONE}/answer", data=fields, headers=OWN)
    kind = {"annual": "years", "quarterly": "quarters", "half-yearly": "half-years"}[name]
    assert f'<option value="{name}"' in page
    assert f"the last fiscal {kind}" in page
    assert name in re.search(r'data-rules="([^"]+)">How many', page)[1].split()  # type: ignore[index]
    table = unescape(answer.text.partition("<table")[2].partition("</thead>")[0])
    labels = re.findall(r"FY\d{4}(?:-\w+)*", table)
    assert list(dict.fromkeys(labels)) == [Period(*key).label for key in oracle(name, 2, ONE)]
    assert f"{CLASSES[name].__name__}(last=2)" in answer.text


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("words", "name", "last"),
    [
        ("latest year", "annual", 1),
        ("all years", "annual", None),
        ("last 4 quarters", "quarterly", 4),
        ("latest half-year", "half-yearly", 1),
        ("last 4 half-years", "half-yearly", 4),
        ("all half-years", "half-yearly", None),
    ],
)
async def test_the_words_of_an_assistant_mean_a_rule(
    service: Sandbox, words: str, name: str, last: int | None
) -> None:
    from tests.mcp.assistant import assistant, rows_of

    async with assistant(service, offered={ONE: "One"}) as call:
        answer = await call("query", entities="One", series="Revenue", periods=words)
    (row,) = rows_of(answer)
    assert sorted(row["values"]) == sorted(Period(*key).label for key in oracle(name, last, ONE))


POINTS = dataset({("Revenue", "all"): {"FY2023-12-00M": 1.0, "FY2024-12-00M": 2.0}}, entity_id=ONE)


async def test_the_explorer_proposes_what_to_choose_on_the_page() -> None:
    httpx = pytest.importorskip("httpx")
    from asyncfin.web import explorer
    from tests.web.conftest import OWN

    async with Sandbox(POINTS) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        transport = httpx.ASGITransport(app=explorer(client, [ONE]))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8766") as browser:
            fields = {"series": "Revenue/all/company=all", "rule": "annual", "last": "2"}
            answer = await browser.post(f"/company/{ONE}/answer", data=fields, headers=OWN)
    assert answer.status_code == 400
    assert '(points in time); choose "all periods"' in unescape(answer.text)


@pytest.mark.parametrize(
    ("selection", "moves", "code"),
    [
        (Exact("FY2024"), False, "Exact('FY2024')"),
        (FiscalRange(), False, "FiscalRange()"),
        (FiscalRange(2015, "FY2020"), False, "FiscalRange(2015, 2020)"),
        (FiscalRange(end=(2020, 3)), False, "FiscalRange(end=(2020, 3))"),
        (Trailing(12), True, "Trailing(12)"),
        (Annual(), False, "Annual()"),
        (Annual(last=2), True, "Annual(last=2)"),
        (HalfYearly(2015, last=3), True, "HalfYearly(2015, last=3)"),
        (Quarterly((2015, 6), (2020, 11)), False, "Quarterly((2015, 6), (2020, 11))"),
        (FiscalRange((999, 1), (999, 12)), False, "FiscalRange((999, 1), (999, 12))"),
    ],
)
def test_a_selection_says_whether_it_moves_and_is_written_as_code(
    selection: Exact | FiscalRange | Trailing | Rule, moves: bool, code: str
) -> None:
    """The code runs as it is pasted."""
    assert (selection.moves, repr(selection)) == (moves, code)
    names = {kind.__name__: kind for kind in (Exact, FiscalRange, Trailing, *RULES.values())}
    assert eval(code, names) == selection


def test_a_rule_of_a_user_is_a_rule() -> None:
    """A subclass is enough; nothing is registered."""

    class NineMonths(Rule):
        months, kind, name = 9, "nine months", "nine-months"

    assert repr(NineMonths(last=2)) == "NineMonths(last=2)"
    assert NineMonths().among([Period(2024, 9, 9), Period(2024, 12, 12)]) == (Period(2024, 9, 9),)


def test_few_modules_name_the_half_yearly_rule() -> None:
    """A rule is described once: what a further one would touch is bounded."""
    package = Path(asyncfin.__file__).parent
    naming = [path for path in package.rglob("*.py") if re.search(r"\bHalfYearly\b", path.read_text())]
    assert len(naming) <= 7, naming


def test_no_module_outside_of_the_model_distinguishes_rules() -> None:
    """No isinstance and no match names one of them: `Rule`, and what it says of itself, decide."""
    package = Path(asyncfin.__file__).parent
    names = "|".join(rule.__name__ for rule in RULES.values())
    pattern = re.compile(rf"isinstance\([^\n]*\b({names})\b|^\s*case [^\n]*\b({names})\b", re.MULTILINE)
    found = [path for path in package.rglob("*.py") if pattern.search(path.read_text())]
    assert [path for path in found if path.parent.name != "model"] == []
