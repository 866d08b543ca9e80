"""ASYNCFIN_BUCKET: the commands take part in a bucket that other processes share."""

from pathlib import Path

import pytest

from asyncfin import RedisBucket
from asyncfin.cli.errors import UsageError
from asyncfin.cli.session import make_shared_bucket


def test_shared_bucket_is_file_or_redis(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path is a file, a URL a Redis server, for which the account must be named."""
    monkeypatch.delenv("ASYNCFIN_ACCOUNT", raising=False)
    place = str(tmp_path / "bucket")
    assert repr(make_shared_bucket(place, 2, 9)) == f"FileBucket('{place}', rate=2, burst=1, daily_budget=9)"
    with pytest.raises(UsageError, match="ASYNCFIN_ACCOUNT"):
        make_shared_bucket("redis://127.0.0.1:1")
    monkeypatch.setenv("ASYNCFIN_ACCOUNT", "us")
    assert isinstance(make_shared_bucket("redis://127.0.0.1:1"), RedisBucket)
