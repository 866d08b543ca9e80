"""`asyncfin completion`: what a shell needs to complete commands and options."""

import sys
from typing import Literal

from asyncfin.cli.app import application


def completion(shell: Literal["bash", "zsh", "fish", "powershell"], /) -> None:
    """Print the script that completes commands and options in a shell.

    Put it where the shell reads such scripts, or let the shell read it at
    each start, as the line below does for bash.

      asyncfin completion bash >> ~/.bash_completion

    Args:
        shell: Which shell it is for.
    """
    sys.stdout.write(application().generate_completion(prog_name="asyncfin", shell=shell))
