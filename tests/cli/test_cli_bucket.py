"""ASYNCFIN_BUCKET: the commands take part in a bucket that other processes share."""

from pathlib import Path

import pytest

from asyncfin import FileBucket, RedisBucket, TokenBucket
from asyncfin.cli.errors import UsageError
from asyncfin.cli.session import make_bucket


def test_a_command_s_bucket_is_its_own_or_the_one_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A path is a file, a URL a Redis server, for which the account must be named."""
    for name in ("ASYNCFIN_BUCKET", "ASYNCFIN_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(make_bucket(2, 9), TokenBucket)
    monkeypatch.setenv("ASYNCFIN_BUCKET", str(tmp_path / "bucket"))
    assert repr(make_bucket(2, 9)) == f"FileBucket('{tmp_path}/bucket', rate=2, burst=1, daily_budget=9)"
    assert isinstance(make_bucket(None, None), FileBucket)
    monkeypatch.setenv("ASYNCFIN_BUCKET", "redis://127.0.0.1:1")
    with pytest.raises(UsageError, match="ASYNCFIN_ACCOUNT"):
        make_bucket(None, None)
    monkeypatch.setenv("ASYNCFIN_ACCOUNT", "us")
    assert isinstance(make_bucket(None, None), RedisBucket)
