"""An S3 of our own for tests: moto's server over loopback, and what it contains."""

import logging
import os
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
from attrs import define
from moto import backends
from moto.server import ThreadedMotoServer
from obstore.store import from_url

from tests.extraction.conftest import Rows, rows

BUCKET = "figures"
# Moto looks through a folder at each request, which takes a third of its time.
_modules = frozenset(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: _modules


@define
class S3:
    """A bucket; its credentials and address are in the environment, where obstore looks for them.

    `store` reaches it directly, whatever address the environment names. To make one takes longer than a
    request.
    """

    url: str
    server: ThreadedMotoServer
    store: Any

    def names(self, prefix: str = "") -> list[str]:
        """The keys of the bucket, or those below a prefix."""
        return sorted(each["path"] for chunk in obstore.list(self.store, prefix or None) for each in chunk)

    def rows(self, prefix: str) -> Rows:
        """What DuckDB reads in the objects of a prefix, fetched into a folder."""
        with tempfile.TemporaryDirectory() as folder:
            for key in self.names(f"{prefix}/"):
                content = bytes(obstore.get(self.store, key).bytes())
                (Path(folder) / Path(key).name).write_bytes(content)
            return rows(Path(folder))

    def stop(self) -> None:
        """Stop the server; the bucket's objects stay."""
        self.server.stop()

    def start(self) -> None:
        """Come back at the same port."""
        _, port = self.server.get_host_and_port()
        self.server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
        self.server.start()

    def everything(self) -> bytes:
        """All keys, metadata and contents, one after the other."""
        found = [obstore.get(self.store, key) for key in self.names()]
        return b"".join(
            repr(sorted(each.attributes.items())).encode() + bytes(each.bytes()) for each in found
        )


ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@contextmanager
def served() -> Iterator[S3]:
    """Serve a bucket while the block lasts, and let the environment name it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT | {"AWS_ENDPOINT_URL": url})
    s3 = S3(url, server, from_url(f"s3://{BUCKET}", endpoint=url))
    try:
        urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")).close()
        yield s3
    finally:
        urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST")).close()
        s3.stop()
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
