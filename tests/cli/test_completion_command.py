"""`asyncfin --install-completion`: shells complete commands and options."""

import shutil
import subprocess
from pathlib import Path

import pytest

from asyncfin.cli.app import application
from tests.cli.conftest import Command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_have_commands_and_options(shell: str) -> None:
    """Every command, and the options of each, are in the script of a shell."""
    script = application().generate_completion(prog_name="asyncfin", shell=shell)  # type: ignore[arg-type]
    assert "catalogue" in script
    assert "half-yearly" in script


def test_installed_script_completes_in_bash(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sourcing what the option has installed registers a completion for the command."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    result = command("--install-completion", "--shell", "bash")
    assert result.code == 0, result.err
    (script,) = [path for path in tmp_path.rglob("*asyncfin*") if path.is_file()]
    done = subprocess.run(
        ["bash", "-c", f"source {script} && complete -p asyncfin"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
