"""Hold the sandbox to its own OpenAPI document: `nox -s contract -- [schemathesis
options]`.

Schemathesis reads the served document, narrowed to what the schema language cannot say:
which ids the dataset has, and that one date or period comes before another. So all that
it makes has to be accepted, and everything it breaks on purpose has to be refused. One
thing is left out:

- `cursor` is opaque, only a value from the answer before is right: tests/sandbox has
  it.
"""

import asyncio
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.openapi import make_openapi
from tests.generate import generate

OPTIONS = (
    "--max-examples=60",
    "--seed=1",
    "--no-color",
    "--phases=examples,coverage,fuzzing",
)
TODAY = datetime(2026, 1, 31, tzinfo=UTC)
# Any of the first before any of the second, at most 92 days apart, and either may be
# left out today.
DATES = (["2026-01-01", "2026-01-31"], ["2026-01-31", "2026-04-02"])


def narrowed(sandbox: Sandbox, series: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the served document, with the ids of these series and with dates and
    periods in order.
    """
    document = json.loads(json.dumps(make_openapi(sandbox.base_url)))
    for path in document["paths"].values():
        for parameter in path.get("parameters", ()):
            parameter["schema"] = {"enum": list(sandbox.entities)}
    _narrow_query(document["components"]["schemas"], series)
    catalogue = document["paths"]["/v1/entities/{entity_id}/dataset/catalogue"]["get"]
    catalogue["parameters"] = [
        item for item in catalogue["parameters"] if item["name"] != "cursor"
    ]
    usage = document["paths"]["/v1/usage"]["get"]["parameters"]
    for parameter, days in zip(usage, DATES, strict=True):
        parameter["schema"] = {"enum": days}
    return document


def _narrow_query(schemas: dict[str, Any], series: list[dict[str, Any]]) -> None:
    query = schemas["Query"]["properties"]
    del query["cursor"]
    query["metric_ids"]["items"] = {
        "enum": sorted({item["metric_id"] for item in series})
    }
    query["reporting_group_ids"]["items"] = {
        "enum": sorted({item["reporting_group_id"] for item in series})
    }
    query["scope_combinations"]["items"] = {
        "enum": [item["scopes"] for item in series[:5]]
    }
    ends = schemas["FiscalRange"]["properties"]
    for name, years in {"from": {"maximum": 2000}, "to": {"minimum": 2001}}.items():
        end = json.loads(json.dumps(schemas["RangeEnd"]))
        end["properties"]["year"] |= years
        ends[name] = end


async def run(document: str, sandbox: Sandbox, options: list[str]) -> int:
    """Return the exit code of schemathesis."""
    command = [
        "run",
        document,
        "--url",
        sandbox.base_url,
        "-H",
        f"Authorization: Bearer {sandbox.token}",
    ]
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "schemathesis.cli",
        *command,
        *OPTIONS,
        *options,
        cwd=Path(document).parent,
    )
    return await child.wait()


async def main(folder: str, options: list[str]) -> int:
    """Serve a generated dataset and let schemathesis loose on it."""
    dataset = generate(seed=1, series=200)
    series = [
        item for group in dataset.publications[-1].groups for item in group["series"]
    ]
    async with Sandbox(dataset, clock=lambda: TODAY) as sandbox:
        document = Path(folder, "openapi.json")
        await asyncio.to_thread(
            document.write_text, json.dumps(narrowed(sandbox, series[:40]))
        )
        status = await run(str(document), sandbox, options)
        print(f"{len(sandbox.log)} requests were served")
    return status


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(asyncio.run(main(scratch, sys.argv[1:])))
