"""`asyncfin completion`: what a shell needs to complete commands and options."""

import sys
from typing import Literal

from asyncfin.cli.app import application


def completion(shell: Literal["bash", "zsh", "fish", "powershell"], /) -> None:
    """Print a script that makes a shell complete commands and options.

    Put it where the shell looks for such scripts, or let the shell read it at
    each start, as the line below does for bash.

      asyncfin completion bash >> ~/.bash_completion

    Args:
        shell: Which shell it is for.
    """
    sys.stdout.write(application().generate_completion(prog_name="asyncfin", shell=shell))
