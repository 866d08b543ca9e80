"""No proxies of this machine in tests of connections, and a certificate."""

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the machine's own proxies from the environment."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    wanted = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    extension = "subjectAltName=IP:127.0.0.1"
    command = [
        "openssl",
        *wanted.split(),
        "-addext",
        extension,
        "-keyout",
        path,
        "-out",
        path.with_suffix(".crt"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path
