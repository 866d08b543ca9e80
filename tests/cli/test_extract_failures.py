"""Failed entities of `asyncfin extract`: what is said of them, and the exit code they come to."""

from pathlib import Path

import pytest

from asyncfin.sandbox import Sandbox, Status
from tests.cli.conftest import ENTITY, UNKNOWN_ID, Command

pytest.importorskip("pyarrow")


@pytest.fixture
def arguments(tmp_path: Path) -> tuple[str, ...]:
    return ("--into", str(tmp_path / "night"), "--annual", "--quiet")


def test_failed_entity_is_named(command: Command, arguments: tuple[str, ...]) -> None:
    """The line on standard error counts them; the report has the error and the request id."""
    result = command("extract", ENTITY, UNKNOWN_ID, *arguments)
    assert result.code == 1
    assert result.line == "asyncfin: 1 of 2 entities failed; the error of each shows what to correct"
    assert f"{UNKNOWN_ID} failed: NotFoundError: 404" in result.out
    assert "request req-" in result.out


@pytest.mark.parametrize("arguments", [("query",), ("extract", "--into", "{}", "--quiet")])
def test_foreign_404_is_about_base_url(
    command: Command, service: Sandbox, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """The page of another web server shows nothing about the entity id."""
    service.inject(Status(status=404, body=b"<html>no such page</html>"))
    name, *options = (text.format(tmp_path / "night") for text in arguments)
    result = command(name, ENTITY, "--annual", *options)
    assert result.code == 4
    assert "it is not the service's response: the base URL is probably wrong" in result.out + result.line
    assert "entity id" not in result.out + result.err
