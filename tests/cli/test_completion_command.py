"""`asyncfin completion`: the scripts by which shells complete commands and options."""

import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import Command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_knows_commands_and_options(command: Command, shell: str) -> None:
    """Every command, and the options of one, are in it."""
    if shell == "powershell" and version("cyclopts").startswith(("5.0.", "5.1.")):
        pytest.skip("cyclopts knows it since 5.2")
    out = command("completion", shell).out
    assert "catalogue" in out
    assert "csv-raw" in out


def test_the_script_is_one_that_bash_reads(command: Command, tmp_path: Path) -> None:
    """Sourcing it registers a completion for the command."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    script = tmp_path / "completion.bash"
    script.write_text(command("completion", "bash").out)
    done = subprocess.run(
        ["bash", "-c", f"source {script} && complete -p asyncfin"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_refused(command: Command) -> None:
    """The line names those that are known."""
    result = command("completion", "tcsh")
    assert result.code == 2
    assert "bash" in result.line
