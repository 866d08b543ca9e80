"""The users' fixture, in a synchronous test, an asynchronous one, and a project of its own."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

import aiohttp
import pytest

from asyncfin.sandbox import Sandbox, Status

pytest_plugins = ["pytester"]


def _dataset(sandbox: Sandbox) -> urllib.request.Request:
    url = f"{sandbox.base_url}/v1/entities/{sandbox.entities[0]}/dataset"
    return urllib.request.Request(url, headers={"Authorization": f"Bearer {sandbox.token}"})


def test_a_synchronous_test_has_a_running_service(asyncfin_sandbox: Sandbox) -> None:
    """It answers a blocking client, and takes faults and publications from the test's thread."""
    with urllib.request.urlopen(_dataset(asyncfin_sandbox)) as response:
        assert json.load(response)["entity_id"] == asyncfin_sandbox.entities[0]
    asyncfin_sandbox.inject(Status(status=503))
    with pytest.raises(urllib.error.HTTPError, match="503") as refused:
        urllib.request.urlopen(_dataset(asyncfin_sandbox))
    refused.value.close()
    assert [entry.status for entry in asyncfin_sandbox.log] == [200, 503]


async def test_an_asynchronous_test_has_one_too(asyncfin_sandbox: Sandbox) -> None:
    """On the test's own loop."""
    url = f"{asyncfin_sandbox.base_url}/openapi.json"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200


def test_a_run_without_the_fixture_loads_no_sandbox() -> None:
    """Every run of pytest loads the plugin where the package is installed."""
    code = "import sys, asyncfin.pytest_plugin; print(*sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(child.stdout.split())
    assert "asyncfin.pytest_plugin" in loaded
    assert not loaded & {"asyncfin.sandbox", "aiohttp.web", "sqlite3"}


def test_the_fixture_comes_with_the_package(pytester: pytest.Pytester) -> None:
    """A user's project only names it."""
    pytester.makepyfile("def test_it(asyncfin_sandbox):\n    assert asyncfin_sandbox.entities\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
