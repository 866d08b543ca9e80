"""Which base URLs are accepted."""

from typing import Any

import pytest
from yarl import URL

from asyncfin.client import Client
from asyncfin.errors import ConnectionFailedError, SelectionError
from asyncfin.wire.retry import Retry
from asyncfin.wire.transport import Transport
from tests.services.raw import answer, scripted
from tests.wire.transporting import TOKEN


async def test_allow_http_warns_and_skips_proxies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """http to another machine warns once, at the caller's line, and goes through no proxy."""
    async with scripted(answer()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.base_url)
        with pytest.warns(UserWarning, match="http://service.invalid is not encrypted") as warned:
            client = Client(
                "http://service.invalid", TOKEN, allow_http=True, trust_env=True, retry=Retry(attempts=1)
            )
        assert [each.filename for each in warned] == [__file__]
        assert TOKEN not in str(warned[0].message)
        with pytest.raises(ConnectionFailedError, match=r"no connection to http://service\.invalid"):
            await client.dataset("O-" + "1" * 32)
        await client.aclose()
    assert proxy.requests == []


@pytest.mark.parametrize(
    "base_url",
    [
        "http://example.com",
        "http://127.0.0.1.example.com",
        "http://10.0.0.1",
        "http://localhost.example.com",
        "ftp://example.com",
        "//example.com",
        "https://",
        "https://example.com:99999",
        "",
        "https://user:hunter2@example.com",
        "https://user:hun#ter2@example.com",
        "https://user:hun/ter2@example.com",
        "https://user:hun?ter2@example.com",
        "https://user:hunter2@example.com:99999",
        "https://user:hunter2",
        "https://user:hunter2/example.com",
        "https:// hunter2",
        "user:hunter2@example.com",
        "https://user:hunter2%40example.com",
        "https://user:hunter2\uff20example.com",
        "a-token-hunter2",
        "https://example.com/?token=hunter2",
        "https://example.com#hunter2",
        URL("https://user:hunter2@example.com"),
    ],
)
def test_wrong_base_url_is_rejected_unseen(base_url: Any) -> None:
    """Only host, port and path have a meaning, and http is for this machine; it may hold a password."""
    with pytest.raises(SelectionError, match="base_url") as caught:
        Transport(base_url)
    assert "ter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://example.com/", "https://example.com"),
        ("https://example.com:8443/a/b/", "https://example.com:8443/a/b"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://127.8.9.1", "http://127.8.9.1"),
        ("http://[::1]:9/", "http://[::1]:9"),
    ],
)
def test_base_url_loses_trailing_slash(given: str, kept: str) -> None:
    """A path prefix stays; all loopback addresses may use http."""
    assert Transport(given).base_url == kept
