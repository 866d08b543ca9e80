"""`asyncfin --install-completion`: shells complete commands and options."""

import pytest

from asyncfin.cli.app import application


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_have_commands_and_options(shell: str) -> None:
    """Every command, and the options of each, are in the script of a shell."""
    script = application().generate_completion(prog_name="asyncfin", shell=shell)  # type: ignore[arg-type]
    assert "catalogue" in script
    assert "half-yearly" in script
