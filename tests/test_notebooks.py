"""The notebooks show what their cells show: each runs here and is compared with what is stored."""

import copy
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython", reason="ipython is not installed")
pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

from tools.run_notebooks import FOLDER, code_cells, run

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# What differs from one machine or run to another.
VARYING = re.compile(
    r"127\.0\.0\.1|localhost|(?<!:)//|/(?:home|root|tmp|usr)/| at 0x|\breq-[0-9a-f]+|\d+:\d+:\d+"
)


def shown(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return outputs without the bytes of pictures, which depend on fonts and versions."""
    compared = copy.deepcopy(outputs)
    for output in compared:
        if "image/png" in output.get("data", {}):
            output["data"]["image/png"] = "a picture"
    return compared


def read(path: Path) -> list[dict[str, Any]]:
    return code_cells(json.loads(path.read_text()))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
async def test_a_notebook_shows_what_is_stored(path: Path) -> None:
    """After a change, `python tools/run_notebooks.py` stores it again."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    pyplot.close("all")  # a notebook would show the figures that other tests of the process have left
    cells = read(path)
    outputs = await run(["".join(cell["source"]) for cell in cells])
    for number, (cell, found) in enumerate(zip(cells, outputs, strict=True), 1):
        assert cell["execution_count"] == number
        assert shown(found) == shown(cell["outputs"]), "".join(cell["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_have_nothing_machine_bound(path: Path) -> None:
    """Only the ids of the demo's companies and publications, and no stored error."""
    for cell in read(path):
        assert {output["output_type"] for output in cell["outputs"]} <= {
            "stream",
            "execute_result",
            "display_data",
        }
        assert VARYING.findall(json.dumps(shown(cell["outputs"]), ensure_ascii=False)) == []


def test_site_page_has_every_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER.parent)
    page = importlib.import_module("notebook_pages").page
    for path in NOTEBOOKS:
        text, plain = page(path.read_text()), page(path.read_text(), html=False)
        for cell in json.loads(path.read_text())["cells"]:
            assert "".join(cell["source"]) in text
            assert "".join(cell["source"]) in plain
            for output in cell.get("outputs", ()):
                data = output.get("data", {"text/plain": output.get("text", "")})
                wanted = data.get("image/png") or "".join(data.get("text/html", data["text/plain"]))
                assert wanted.strip() in text
                assert "".join(data["text/plain"]).strip() in plain
        assert "data:image" not in plain
