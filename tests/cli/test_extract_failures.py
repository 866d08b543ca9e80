"""Failed entities of `asyncfin extract`: what is said of them, and the exit code they come to."""

from pathlib import Path

import pytest

from asyncfin.sandbox import Account, Sandbox, Status
from tests.cli.conftest import ENTITY, LONG_ENTITY, RATIOS_ENTITY, UNKNOWN_ID, Command

pytest.importorskip("pyarrow")

CHECK_ID = "check the entity id, and that the account has access to its dataset"
CHECK_ACCESS = "check the token's permissions and the account's access"


@pytest.fixture
def arguments(tmp_path: Path) -> tuple[str, ...]:
    return ("--into", str(tmp_path / "night"), "--annual", "--quiet")


def test_a_failed_entity_among_others_is_named_and_the_exit_code_is_1(
    command: Command, arguments: tuple[str, ...]
) -> None:
    """The line on standard error counts them and says what to check; the report has the request id."""
    result = command("extract", ENTITY, UNKNOWN_ID, *arguments)
    assert (result.code, result.line) == (1, f"asyncfin: 1 of 2 entities failed; {CHECK_ID}")
    assert f"{UNKNOWN_ID} failed: NotFoundError: 404" in result.out
    assert "request req-" in result.out


def test_where_none_is_found_the_exit_code_is_that_of_one_not_found(
    command: Command, arguments: tuple[str, ...]
) -> None:
    """4, without the advice to run it again."""
    result = command("extract", UNKNOWN_ID, f"{UNKNOWN_ID[:-1]}e", *arguments)
    assert (result.code, result.line) == (4, f"asyncfin: 2 of 2 entities failed; {CHECK_ID}")


def test_where_all_are_refused_the_exit_code_is_that_of_a_permission(
    command: Command, service: Sandbox, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """3, with the advice of the other commands."""
    service.put_account(Account("shut", access=False))
    monkeypatch.setenv("ASYNCFIN_TOKEN", service.issue_token("shut"))
    result = command("extract", ENTITY, LONG_ENTITY, RATIOS_ENTITY, *arguments)
    assert (result.code, result.line) == (3, f"asyncfin: 3 of 3 entities failed; {CHECK_ACCESS}")


def test_failures_that_may_pass_are_to_be_run_again(
    command: Command, service: Sandbox, arguments: tuple[str, ...]
) -> None:
    """Each kind has its advice, once; where they differ the exit code is 1."""
    service.inject(Status(status=501, operation="query"))
    result = command("extract", ENTITY, LONG_ENTITY, UNKNOWN_ID, *arguments)
    assert result.code == 1
    said, *advice = result.line.split("; ")
    assert said == "asyncfin: 3 of 3 entities failed"
    assert sorted(advice) == [CHECK_ID, "run it again later"]


def test_a_wrong_request_of_every_entity_is_wrong_usage(
    command: Command, service: Sandbox, arguments: tuple[str, ...]
) -> None:
    """A request that every entity refuses as invalid is not to be run again unchanged."""
    service.inject(Status(status=400, code="validation_failed", operation="query"))
    result = command("extract", ENTITY, LONG_ENTITY, *arguments)
    assert result.code == 2
    assert result.line.endswith("2 of 2 entities failed; correct the command; it fails again unchanged")
