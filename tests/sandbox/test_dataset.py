"""The dataset file: what loads, what is refused and in which words, and writing as the inverse of reading."""

from __future__ import annotations

import copy
import gzip
import json
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from asyncfin.sandbox import BrokenDatasetError, dataset
from asyncfin.sandbox.dataset import dump, load
from asyncfin.sandbox.dataset_file import format_number

ROOT = Path(__file__).parents[2]
DATASET_ID = "abcdef00-0000-4000-8000-000000000001"

Document = Any  # JSON as it comes


def documented() -> Document:
    """The example of the format's page."""
    page = (ROOT / "docs/dataset-format.md").read_text()
    block = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert block is not None
    return json.loads(block[1])


def full() -> Document:
    """A document that uses every key, with two publications."""
    first = {
        "dataset_id": DATASET_ID,
        "created_timestamp": "2024-02-01T06:00:00Z",
        "provenance": {"anything": [1]},
        "periods": [[2023, 9, 3], [2023, 12, 3], [2023, 12, 12]],
        "report_periods": [[2024, 3, 0], [2023, 12, 0]],
        "items": ["item one", "item two"],
        "fill_types": ["derived", "reported"],
        "scope_groups": [
            {
                "scope_group_id": "company",
                "name": "Company",
                "description": "The whole",
                "scopes": [
                    {
                        "scope_id": "consolidated",
                        "name": "Total",
                        "description": "All of it",
                        "role": "company",
                        "aliases": ["group"],
                        "active_start": {"year": 2023, "end_month": 9, "duration_months": 0},
                        "active_end": {"year": 2023, "end_month": 12, "duration_months": 0},
                    },
                    {"scope_id": "part"},
                ],
            },
            {"scope_group_id": "segment", "scopes": [{"scope_id": "a|b=c%é"}]},
        ],
        "groups": [
            {
                "reporting_group_id": "annual.all",
                "name": "Annual",
                "description": "Fiscal years",
                "basis": "consolidated",
                "cadence": "annual",
                "series": [
                    {
                        "series_id": "S-1",
                        "reporting_group_id": "annual.all",
                        "metric_id": "Revenue",
                        "label": "Revenue",
                        "description": "Sales. Unit: USD.",
                        "basis": "segment",
                        "scopes": [
                            {"scope_group_id": "company", "scope_id": "consolidated"},
                            {"scope_group_id": "segment", "scope_id": "a|b=c%é"},
                        ],
                        "number_format": "0.0%",
                        "period_meaning": "at_period_end",
                    }
                ],
            },
            {
                "reporting_group_id": "quarterly",
                "basis": "consolidated",
                "cadence": "quarterly",
                "series": [
                    {
                        "series_id": "S-2",
                        "metric_id": "Revenue",
                        "scopes": [{"scope_group_id": "company", "scope_id": "consolidated"}],
                    }
                ],
            },
        ],
        "values": {
            "S-1": [
                [0, [0.125, 1, 1, []]],
                [2, [0.25, 0, 1, [[0, 4, 2], [1, 0, 0]]], [0.5, 1, 0, [[1, 7, 1]]]],
            ]
        },
    }
    second = copy.deepcopy(first) | {
        "dataset_id": "00000000-0000-4000-8000-000000000002",
        "created_timestamp": "2024-05-01T06:00:00+00:00",
    }
    return {
        "format": "asyncfin-dataset/1",
        "entity_id": "O-" + "0" * 31 + "1",
        "name": "Example",
        "provenance": "by hand",
        "publications": [first, second],
    }


def set_at(document: Document, place: str, value: Any) -> None:
    """Set what stands at a JSON place of a document; a missing value is removed."""
    *parents, last = (
        int(index) if index else key for key, index in re.findall(r"\.([\w-]+)|\[(\d+)\]", place)
    )
    for part in parents:
        document = document[part]
    document[last] = value
    if value is MISSING:
        del document[last]


MISSING = object()


def test_documented_example_loads() -> None:
    """The file printed in the documentation is complete; what it leaves out is filled in as documented."""
    publication = load(documented()).publications[0]
    (group,) = publication.groups
    assert group["name"] == group["description"] == "annual"
    assert group["series"] == [
        {
            "series_id": "S-1",
            "reporting_group_id": "annual",
            "metric_id": "Revenue",
            "label": "Revenue",
            "description": "Revenue",
            "basis": "consolidated",
            "scopes": [{"scope_group_id": "company", "scope_id": "consolidated"}],
            "number_format": "#,##0",
            "period_meaning": "over_period",
        }
    ]
    assert publication.scope_groups[0]["scopes"] == [
        {
            "scope_id": "consolidated",
            "name": "consolidated",
            "description": "consolidated",
            "role": "company",
            "aliases": [],
        }
    ]
    _, original, restated = publication.values["S-1"][0]
    assert restated is not None
    assert (original["number"], restated["number"]) == (1200, 1150)
    assert original == {
        "number": 1200,
        "text": "1,200",
        "number_format": "#,##0",
        "fill_type": "reported",
        "report_period": {"year": 2023, "end_month": 12, "duration_months": 0},
        "sources": [],
    }
    assert publication.values["S-1"][1][2] is None


def test_every_key_is_served() -> None:
    """A document that leaves nothing out arrives unchanged, tables resolved."""
    document = full()
    dataset = load(document)
    first = document["publications"][0]
    publication = dataset.publications[0]
    assert (dataset.entity_id, dataset.name) == (document["entity_id"], "Example")
    assert publication.dataset_id == first["dataset_id"]
    assert publication.created_timestamp == first["created_timestamp"]
    assert publication.periods == ((2023, 9, 3), (2023, 12, 3), (2023, 12, 12))
    assert publication.scope_groups[0]["scopes"][0] == first["scope_groups"][0]["scopes"][0]
    assert publication.groups[0] == first["groups"][0]
    assert publication.values["S-2"] == ()
    index, original, restated = publication.values["S-1"][1]
    assert index == 2
    assert original == {
        "number": 0.25,
        "text": "25.0%",
        "number_format": "0.0%",
        "fill_type": "derived",
        "report_period": {"year": 2023, "end_month": 12, "duration_months": 0},
        "sources": [
            {"item_id": "item one", "row_index": 4, "column_index": 2},
            {"item_id": "item two", "row_index": 0, "column_index": 0},
        ],
    }
    assert restated is not None
    assert restated["report_period"] == {"year": 2024, "end_month": 3, "duration_months": 0}


def test_file_loads_from_each_source(tmp_path: Path) -> None:
    """All sources, compressed or not, and what `dump` writes, are the same dataset."""
    plain = json.dumps(full()).encode()
    (tmp_path / "plain.gz").write_bytes(plain)
    (tmp_path / "packed.json").write_bytes(gzip.compress(plain))
    dataset = load(full())
    sources = [
        tmp_path / "plain.gz",
        str(tmp_path / "packed.json"),
        plain,
        gzip.compress(plain),
        dump(dataset),
    ]
    assert all(load(source) == dataset for source in sources)
    assert dump(dataset) == dump(load(full()))


def test_value_of_one_version() -> None:
    """A null in place of either value says which version has none, and is written back as it came."""
    document = documented()
    rows = [[0, None, 1150], [1, 1300, None]]
    document["publications"][0]["values"]["S-1"] = rows
    dataset = load(document)
    (_, missing, restated), (_, original, withdrawn) = dataset.publications[0].values["S-1"]
    assert isinstance(restated, dict)
    assert isinstance(original, dict)
    assert (missing, restated["number"]) == (None, 1150)
    assert (original["number"], withdrawn) == (1300, "withdrawn")
    assert json.loads(gzip.decompress(dump(dataset)))["publications"][0]["values"] == {"S-1": rows}
    assert load(dump(dataset)) == dataset


def test_ids_and_texts_may_be_empty() -> None:
    """Nothing in the service description says otherwise, so the sandbox can serve them."""
    document = documented()
    publication = document["publications"][0]
    document["name"] = ""
    publication["scope_groups"] = [{"scope_group_id": "", "scopes": [{"scope_id": "", "aliases": [""]}]}]
    (group,) = publication["groups"]
    group |= {"reporting_group_id": "", "basis": "", "cadence": "", "name": "", "description": ""}
    scopes = [{"scope_group_id": "", "scope_id": ""}]
    group["series"] = [{"series_id": "", "metric_id": "", "scopes": scopes, "number_format": ";;;"}]
    publication["values"] = {"": [[0, 1200]]}
    dataset = load(document)
    ((_, value, _),) = dataset.publications[0].values[""]
    assert isinstance(value, dict)
    assert (value["number"], value["text"]) == (1200, "")
    assert load(dump(dataset)) == dataset


P = "$.publications[0]"
REF = {"scope_group_id": "company", "scope_id": "consolidated"}

BROKEN: list[tuple[str, Any, str]] = [
    ("$.format", "x/9", '"x/9"'),
    ("$.publication", [], "is unknown here"),
    ("$.entity_id", "O-123", "matching regex"),
    ("$.entity_id", 7, "is 7: expected `str`"),
    ("$.name", "a\ud800", 'is "a\\ud800": expected `str`'),
    ("$.name", "a\0b", "matching regex"),
    ("$.publications", [], "length >= 1"),
    ("$.publications[1].dataset_id", DATASET_ID.upper(), "which $.publications[0] has"),
    ("$.publications[1].created_timestamp", "2020-01-01T00:00:00Z", "oldest first"),
    (f"{P}.created_timestamp", "2024-02-01T06:00:00", "UTC"),
    (f"{P}.periods[1][1]", 13, "is 13: expected `int` <= 12"),
    (f"{P}.periods[0][1]", True, "is true: expected `int`"),
    (f"{P}.periods[1]", [2023, 6, 3], "is before"),
    (f"{P}.report_periods[1][2]", 12, "is 12: invalid enum value"),
    (f"{P}.scope_groups[0].scopes[1].scope_id", "consolidated", 'is "consolidated", which'),
    (f"{P}.scope_groups[0].scopes[0].active_end.duration_months", 3, "is 3: invalid enum value"),
    (f"{P}.groups[1].reporting_group_id", "annual.all", f'is "annual.all", which {P}.groups[0] has'),
    (f"{P}.groups[0].series[0].reporting_group_id", "quarterly", '"annual.all"'),
    (f"{P}.groups[1].series[0].series_id", "S-1", f'is "S-1", which {P}.groups[0].series[0]'),
    (f"{P}.groups[0].series[0].label", None, "null"),
    (f"{P}.groups[0].series[0].scopes", [REF] * 21, "expected `array` of length <= 20"),
    (f"{P}.groups[0].series[0].scopes[1]", REF | {"scope_id": "nowhere"}, '"nowhere"'),
    (f"{P}.values", MISSING, "is missing"),
    (f"{P}.values.S-9", [], 'is not a series of the groups; did you mean "S-2"?'),
    (f"{P}.values.S-1[1]", [1, 2, 3, 4], "is [1, 2, 3, 4]: expected `array` of at most length 3"),
    (f"{P}.values.S-1[1][0]", 3, "write 0 to 2"),
    (f"{P}.values.S-1[1][0]", 0, "is 0 after 0: rows are in the order of the periods, one"),
    (f"{P}.values.S-1[0]", [0, None, None], "holds no value"),
    (f"{P}.values.S-1[0][1]", math.inf, "Infinity"),
    (f"{P}.values.S-1[0][1]", 10**400, "is"),
    (f"{P}.values.S-1[0][1][1]", 2, "fill_types"),
    (f"{P}.values.S-1[1][1][3][0][0]", 2, "items"),
]


@pytest.mark.parametrize(("place", "value", "words"), BROKEN)
def test_broken_document_is_rejected_at_place(place: str, value: Any, words: str) -> None:
    """Every rule, broken once, is reported with its JSON place and the value or key at fault."""
    document = full()
    set_at(document, place, value)
    with pytest.raises(BrokenDatasetError) as caught:
        load(document)
    error = caught.value
    assert (error.source, error.place) == ("<dict>", place)
    assert words in error.problem
    assert isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == f"<dict>: {place}: {error.problem}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not JSON"),
        (b"[]", "is []: expected `object`"),
        (b"\xff\xfe\xfa", "is not JSON"),
        (b'{"format": NaN}', "NaN is not a finite number"),
        (b'{"format": 1, "format": 2}', "'format' occurs twice"),
        (b"[" * 100_000, "is not JSON"),
        (gzip.compress(b"{}", mtime=0)[:-4], "is a broken gzip stream"),
        (gzip.compress(b"{}" * 50, mtime=0)[:12] + b"\xff" * 20, "is a broken gzip stream"),
    ],
)
def test_content_without_json_is_rejected(content: bytes, words: str) -> None:
    """Broken JSON, broken gzip and NaN are one clear error, without the lower library's one."""
    with pytest.raises(BrokenDatasetError) as caught:
        load(content)
    assert caught.value.place == "$"
    assert words in caught.value.problem
    assert caught.value.__context__ is None


def test_inflating_file_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small gzip file can inflate to gigabytes: no more than the bound is inflated, of all members."""
    small = gzip.compress(json.dumps(documented()).encode())
    bomb = gzip.compress(b" " * (1 << 20)) * 3 + small
    assert load(bomb) == load(small)
    monkeypatch.setattr(dataset, "_MAX_INFLATED", 3 << 20)
    assert load(small)
    inflated = []
    read = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size: inflated.append(size) or read(self, size))
    with pytest.raises(BrokenDatasetError, match="inflates to more than 3 MiB"):
        load(bomb)
    assert inflated == [(3 << 20) + 1]


def test_unreadable_file_is_rejected_by_name(tmp_path: Path) -> None:
    """A missing file, a folder, an impossible name and a wrong type: the error begins with what was given."""
    for path in (tmp_path / "missing.json", tmp_path, "a\0b"):
        with pytest.raises(BrokenDatasetError, match="cannot be read") as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: $: ")
    with pytest.raises(BrokenDatasetError, match=r"^<list>: \$: cannot be read .* not '?list"):
        load(["a.json", "b.json"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "pattern", "text"),
    [
        (1234567, "#,##0", "1,234,567"),
        (-1234.6, "#,##0", "-1,235"),
        (-0.3, "#,##0", "0"),
        (12345678901234567890, "#,##0", "12,345,678,901,234,567,890"),
        (-0.001, "0.00", "0.00"),
        (0.00001234, "0.00000", "0.00001"),
        (0.241, "0.0%", "24.1%"),
        (1234.5, "#,##0.00", "1,234.50"),
        (1234, "0", "1234"),
        (12.5, "$ 0", "12.5"),
        (12.5, ";;;", ""),
    ],
)
def test_number_is_shown_by_pattern(number: float, pattern: str, text: str) -> None:
    """The patterns of real datasets, and the plain number for any other."""
    assert format_number(number, pattern) == text
