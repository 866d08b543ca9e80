"""Proxies of the environment."""

from typing import Any

import pytest

from asyncfin.errors import ConnectionFailedError, SelectionError
from asyncfin.wire.address import environment_proxy
from tests.services.raw import answer, scripted
from tests.wire.transporting import READ, TOKEN, attempted, connected, failure_of


@pytest.mark.parametrize("scheme", ["http://", ""])
@pytest.mark.parametrize("trust_env", [True, False])
async def test_proxy_is_used_on_request(
    trust_env: bool, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's proxy is asked for a tunnel, without the token; its scheme may be left out."""
    async with scripted(answer(502)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.base_url.replace("http://", scheme))
        async with connected("https://service.invalid", trust_env=trust_env) as transport:
            assert isinstance(await failure_of(transport), ConnectionFailedError)
    assert [(each.method, each.target) for each in proxy.requests] == [
        ("CONNECT", "service.invalid:443")
    ] * trust_env
    assert all("authorization" not in each.headers for each in proxy.requests)


@pytest.mark.parametrize("excepted", ["service.invalid", "service.invalid:8443", ".invalid", "*"])
async def test_no_proxy_is_respected(excepted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts in no_proxy, with and without a port, are reached directly."""
    async with scripted(answer(502)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.base_url)
        monkeypatch.setenv("no_proxy", excepted)
        async with connected("https://service.invalid:8443", trust_env=True) as transport:
            assert isinstance(await failure_of(transport), ConnectionFailedError)
    assert proxy.requests == []


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://user:secret@127.0.0.1:1",
        "http://",
        "ftp://x",
        "http://h:99999",
        "http://u:se#cret@h",
        "http://u:s@h/#x",
    ],
)
async def test_wrong_proxy_is_rejected_unseen(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of another kind is refused by the variable's name, without its value."""
    monkeypatch.setenv("https_proxy", proxy)
    async with connected("https://example.com", trust_env=True) as transport:
        with pytest.raises(SelectionError, match="https_proxy") as caught:
            await attempted(transport, READ)
    assert proxy not in str(caught.value)


async def test_netrc_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A netrc password for the same host does not take the place of the token."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password something\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with scripted(answer()) as server, connected(server.base_url, trust_env=True) as transport:
        assert (await attempted(transport, READ)).status == 200
    assert server.requests[0].token == TOKEN


@pytest.mark.parametrize(("status", "retryable"), [(407, False), (503, True)])
async def test_rejecting_proxy_is_failed_connection(
    status: int, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy's refusal is a failed connection with its status, never the service's response."""
    async with scripted(answer(status)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.base_url)
        async with connected("https://service.invalid", trust_env=True) as transport:
            error = await failure_of(transport)
    assert isinstance(error, ConnectionFailedError)
    assert str(status) in str(error)
    assert (error.sent, error.retryable) == (False, retryable)


async def test_unreachable_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy out of reach is what the error names, not the service."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    async with connected("https://example.com", trust_env=True) as transport:
        error = await failure_of(transport)
    assert isinstance(error, ConnectionFailedError)
    assert "no connection to the proxy" in str(error)
    assert (error.sent, error.retryable) == (False, True)


EXCEPTED = [
    ("10.1.2.3", "10.0.0.0/8"),
    ("10.1.2.3:8443", "192.168.0.0/16, 10.0.0.0/8"),
    ("[fd00::1]", "fd00::/8"),
    ("[fd00::1]", "[fd00::1]"),
    ("[fd00::1]:8443", "[fd00::1]:8443"),
    ("[fd00::1]", "fd00::1"),
    ("service.example", "service.example."),
    ("service.example:8443", "service.example.:8443"),
    ("10.1.2.3:8443", "10.0.0.0/8:8443"),
    ("service.example.", "service.example"),
    ("api.service.example.", ".service.example"),
    ("api.service.example", "service.example."),
]
OTHERS = [
    ("11.1.2.3", "10.0.0.0/8"),
    ("service.example", "10.0.0.0/8"),
    ("10.1.2.3:8443", "10.0.0.0/8:443"),
    ("[fd00::1]:8443", "[fd00::1]:443"),
    ("otherservice.example", "service.example."),
    ("service.example", ""),
]


@pytest.mark.parametrize(("host", "excepted"), EXCEPTED + OTHERS)
def test_proxy_is_excepted(host: str, excepted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks, addresses in brackets and names with a final dot; no others."""
    proxy = "http://proxy.example:3128"
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.setenv("no_proxy", excepted)
    expected = None if (host, excepted) in EXCEPTED else proxy
    assert environment_proxy(f"https://{host}") == expected
