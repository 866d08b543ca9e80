"""The users' fixture, in a synchronous test, an asynchronous one, and a separate project."""

import importlib.metadata
import json
import urllib.error
import urllib.request

import aiohttp
import pytest

from asyncfin.sandbox import Sandbox, Status
from tests.generate import generate

pytest_plugins = ["pytester"]


def _dataset(sandbox: Sandbox) -> urllib.request.Request:
    url = f"{sandbox.base_url}/v1/entities/{sandbox.entities[0]}/dataset"
    return urllib.request.Request(url, headers={"Authorization": f"Bearer {sandbox.token}"})


def test_synchronous_test_has_running_service(asyncfin_sandbox: Sandbox) -> None:
    """A synchronous test gets a service that answers a blocking client and takes faults from its thread."""
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


_TOKENS: set[str] = set()


@pytest.mark.parametrize("number", range(2))
def test_each_test_has_its_own_service(asyncfin_sandbox: Sandbox, number: int) -> None:
    """Whichever comes first: a publication, a fault and a request of one test are not in the other."""
    assert asyncfin_sandbox.token not in _TOKENS
    _TOKENS.add(asyncfin_sandbox.token)
    assert asyncfin_sandbox.log == []
    before = asyncfin_sandbox.entities
    with urllib.request.urlopen(_dataset(asyncfin_sandbox)) as response:
        assert response.status == 200
    asyncfin_sandbox.publish(generate(1, series=1, publications=1))
    asyncfin_sandbox.inject(Status(status=503))
    assert len(asyncfin_sandbox.entities) == len(before) + 1 == 4


def test_fixture_is_imported_where_named(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's project only names it; a run without it imports no sandbox, client or aiohttp."""
    (plugin,) = importlib.metadata.entry_points(group="pytest11", name="asyncfin")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others take seconds
    pytester.makepyfile(
        """
        import sys

        def test_without():
            ours = {name for name in sys.modules if name.partition(".")[0] in ("asyncfin", "aiohttp")}
            assert ours == {"asyncfin", "asyncfin.pytest_plugin"}

        def test_with(asyncfin_sandbox):
            assert asyncfin_sandbox.entities
        """
    )
    result = pytester.runpytest_subprocess("-p", plugin.value)
    result.assert_outcomes(passed=2)
