"""Each display of values says which version they are of: as first reported, or as last restated."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    Comparison,
    Panel,
    Select,
    concat,
    first_of,
    last_twelve_months,
)
from asyncfin.sandbox import Sandbox
from asyncfin.web import explorer, reply

pytest.importorskip("pandas")
pytest.importorskip("polars")
pytest.importorskip("matplotlib").use("Agg")

VERSIONS = ("original", "latest_restated")
# What names a version, as the service writes it and as people read it.
WORDS = {
    "original": {"original", "as first reported"},
    "latest_restated": {"latest_restated", "as last restated"},
}
# NVIDIA's earnings per share of FY2024, before and after a split of its shares.
NUMBERS = {"original": "12.05", "latest_restated": "1.21"}
EPS = Select("EPS", basis="consolidated", cadence="annual")
YEARS = Annual(2022)
ROW = "EPS/annual.consolidated/company=consolidated"


def said(text: str) -> set[str]:
    """Return the versions that a text names."""
    return {version for version, words in WORDS.items() if any(word in text for word in words)}


def check(displays: Mapping[str, Mapping[str, str]], *, with_numbers: bool = True) -> None:
    """Check that the display of each version has its number and names this version alone."""
    for version in VERSIONS:
        for name, text in displays[version].items():
            assert said(text) == {version}, (name, text)
            if with_numbers:
                assert re.search(rf"(?<![\d.]){NUMBERS[version]}(?!\d)", text), (name, text)


@pytest.fixture
async def sandbox() -> Any:
    async with Sandbox.demo() as sandbox:
        yield sandbox


@pytest.fixture
async def client(sandbox: Sandbox) -> Any:
    async with Client(sandbox.base_url, sandbox.token) as client:
        yield client


async def panels_of(client: Client, entity_id: str) -> dict[str, Panel]:
    return {
        version: await client.query(entity_id, EPS, YEARS, value_version=version)  # type: ignore[arg-type]
        for version in VERSIONS
    }


def texts_of(shown: Panel | Comparison) -> Iterator[tuple[str, str]]:
    """Yield the texts and HTML of a panel or a comparison, and its JSON."""
    kind = type(shown).__name__
    yield f"str of a {kind}", str(shown)
    yield f"HTML of a {kind}", shown._repr_html_()
    for unit in ("millions", None):
        yield f"{kind}.show({unit!r})", str(shown.show(unit=unit))  # type: ignore[arg-type]
        yield f"HTML of {kind}.show({unit!r})", shown.show(unit=unit)._repr_html_()  # type: ignore[arg-type]
    yield f"{kind}.to_json()", shown.to_json()
    yield f"{kind}.to_json(indent=2)", shown.to_json(indent=2)


def frames_of(shown: Panel | Comparison) -> Iterator[tuple[str, str]]:
    """Yield all tables: their cells, and what their metadata or `attrs` say."""
    kind = type(shown).__name__
    for layout in ("long", "wide"):
        for labels in (False, True):
            name = f"{kind}, {layout}, labels={labels}"
            table = shown.to_arrow(layout, labels=labels)  # type: ignore[arg-type]
            frame = shown.to_pandas(layout, labels=labels)  # type: ignore[arg-type]
            yield f"Arrow table of {name}", f"{table.to_pydict()} {table.schema.metadata}"
            yield f"pandas frame of {name}", f"{frame.to_string()} {frame.attrs}"
        long = shown.to_polars("long", labels=False)
        yield f"polars frame of {kind}", str(long.select("number", "asked_version").rows())


async def test_texts_and_tables_of_panels(client: Client, sandbox: Sandbox) -> None:
    panels = await panels_of(client, sandbox.entities[1])
    several = {
        version: await client.compare(sandbox.entities, EPS, YEARS, value_version=version)  # type: ignore[arg-type]
        for version in VERSIONS
    }
    displays = {
        version: {
            **dict(texts_of(panels[version])),
            **dict(texts_of(several[version])),
            **dict(frames_of(panels[version])),
            **dict(frames_of(several[version])),
            "HTML of a Series": panels[version].one()._repr_html_(),
            "repr of values": str(panels[version].one().values),
            "first_of": str(first_of(panels[version], "EPS").to_pydict()),
            "concat": str(concat([panels[version]]).to_pydict()),
            "JSON of web.reply": await replied(panels[version], "application/json"),
            "CSV of web.reply": await replied(panels[version], "text/csv"),
        }
        for version in VERSIONS
    }
    assert len(displays["original"]) > 25
    check(displays)
    rows = {
        version: {
            "str of a Series": str(panels[version].one()),
            "last_twelve_months": str(last_twelve_months(panels[version]).to_pydict()),
            "Plan": str(await client.plan(sandbox.entities[1], EPS, YEARS, value_version=version)),  # type: ignore[arg-type]
            **dict(plots_of(panels[version], several[version])),
        }
        for version in VERSIONS
    }
    check(rows, with_numbers=False)


async def replied(panel: Panel, accept: str) -> str:
    return (await reply(panel, accept=accept)).body.decode()


def plots_of(panel: Panel, several: Comparison) -> Iterator[tuple[str, str]]:
    for shown in (panel, several):
        axes = shown.plot()
        yield f"plot of a {type(shown).__name__}", axes.get_title(loc="left").replace("\n", " ")


async def test_both_versions_side_by_side(client: Client, sandbox: Sandbox) -> None:
    """Each column, line and row says which."""
    panels = await panels_of(client, sandbox.entities[1])
    original, restated = panels.values()
    for labels in (False, True):
        *_, first, last = concat([original, restated], "wide", labels=labels).column_names
        assert [said(first), said(last)] == [{"original"}, {"latest_restated"}]
    for row in concat([original, restated]).to_pylist():
        if row["period_label"] == "FY2024":
            assert row["text"] == NUMBERS[row["asked_version"]]
    axes = restated.plot(original.plot())
    assert said(axes.get_title(loc="left").replace("\n", " ")) == set(VERSIONS)
    lines = {
        text.get_text(): max(line.get_ydata())
        for text, line in zip(axes.get_legend().get_texts(), axes.get_lines(), strict=True)
    }
    assert lines == {"as first reported": 12.05, "as last restated": 4.93}


async def test_the_explorer(client: Client, sandbox: Sandbox) -> None:
    """Its charts, table, cells and CSV; of both versions each row says which."""
    pytest.importorskip("httpx")
    from tests.web.conftest import Page
    from tests.web.test_explorer import texts

    page = Page(explorer(client, sandbox.entities), client, sandbox.entities)
    nvidia = sandbox.entities[1]
    series_id = (await client.query(nvidia, EPS, YEARS)).one().series_id
    displays: dict[str, dict[str, str]] = {}
    for version in VERSIONS:
        asked = {"series": ROW, "last": "5", "value_version": version, "spend": "1"}
        answer = (await page.post("answer", nvidia, **asked)).text
        shown, _, _ = answer.partition('<details class="code">')
        cell = {"company": nvidia, "version": version, "series": series_id, "period": "FY2024"}
        about = await page.post(
            "cell", nvidia, **asked, **{f"cell_{name}": text for name, text in cell.items()}
        )
        (figure,) = re.findall(r"<figcaption>.*?</figcaption>", shown)
        assert said(figure) == {version}
        displays[version] = {
            "explorer": shown,
            "explorer's cell": about.text,
            "explorer's CSV": (await page.post("csv", nvidia, **asked)).text,
        }
    check(displays)
    both = {"series": ROW, "last": "5", "value_version": "both", "spend": "1"}
    answer = await page.post("answer", nvidia, **both)
    rows = [row for row in texts(answer.text) if set(row) & set(NUMBERS.values())]
    assert [said(row[0]) for row in rows] == [{"original"}, {"latest_restated"}]
    for line in (await page.post("csv", nvidia, **both)).text.splitlines():
        if ",FY2024," in line:
            (version,) = said(line)
            assert NUMBERS[version] in line.split(",")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
async def test_the_tools_of_an_assistant(sandbox: Sandbox) -> None:
    """The text and the structured content; a note on what was restated names both, and in which order."""
    pytest.importorskip("mcp")
    from tests.mcp.assistant import assistant, text_of

    async with assistant(sandbox) as call:
        for version in VERSIONS:
            result = await call(
                "query",
                entities="NVIDIA",
                series="EPS",
                periods="last 5 years",
                restated=version != "original",
            )
            first, *rows = text_of(result).splitlines()
            assert said(first) == {version}
            assert any(NUMBERS[version] in row.split("\t") for row in rows)
            content = result.structured_content
            assert content["value_version"] == version
            assert content["rows"][0]["values"]["FY2024"] == NUMBERS[version]
            (note,) = content["notes"]
            assert "(first reported -> last restated)" in note
            assert "FY2024 12.05 -> 1.21" in note


QUERY = ["query", "--metric", "EPS", "--basis", "consolidated"]
COMMANDS = [
    *(
        [*QUERY, "--cadence", "annual", "--annual", "--last", "5", *form]
        for form in ([], ["--csv"], ["--json"])
    ),
    [*QUERY, "--cadence", "annual", "--annual", "--last", "5", "--unit", "millions"],
    *([*QUERY, "--ttm", *form] for form in ([], ["--csv"], ["--json"])),
    [*QUERY, "--annual", "--explain"],
]


@pytest.fixture
def printed(
    asyncfin_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return a function that runs a command in this process and returns what it prints."""
    cli = pytest.importorskip("asyncfin.cli.app", exc_type=ImportError)
    monkeypatch.setenv("ASYNCFIN_BASE_URL", asyncfin_sandbox.base_url)
    monkeypatch.setenv("ASYNCFIN_TOKEN", asyncfin_sandbox.token)

    def run(*words: str) -> str:
        assert cli.run(words) == 0
        return capsys.readouterr().out

    return run


def restated(version: str) -> list[str]:
    return [] if version == "original" else ["--restated"]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_command_line(printed: Callable[..., str], asyncfin_sandbox: Sandbox, words: list[str]) -> None:
    """Of one entity and of several."""
    command, *options = words
    entities = asyncfin_sandbox.entities
    outputs = {
        version: {
            f"{len(ids)} entities": printed(command, *ids, *options, *restated(version))
            for ids in (entities[1:2], entities)
        }
        for version in VERSIONS
    }
    check(outputs, with_numbers="--last" in words)


@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]], ids=["table", "csv", "json"])
def test_the_commands_of_a_feed(
    printed: Callable[..., str], asyncfin_sandbox: Sandbox, tmp_path: Path, form: list[str]
) -> None:
    """What was known at a time, and what changed."""
    question = [*QUERY[1:], "--cadence", "annual", "--annual", "--from", "2022", "--history"]
    outputs = {}
    for version in VERSIONS:
        night = str(tmp_path / version)
        printed("extract", asyncfin_sandbox.entities[1], *question, "--into", night, *restated(version))
        outputs[version] = {
            "as-of": printed("as-of", night, "2027-01-01", *form),
            "changes": printed("changes", night, "--change", "appeared", *form),
        }
    check(outputs)
