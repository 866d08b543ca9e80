"""Run the README's first program and compare what it prints: `python
tools/first_program.py README.md`.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

import asyncfin

FIRST = re.compile(
    r"^```python\n(.*?)^```\n```text\n(.*?)^```\n", re.MULTILINE | re.DOTALL
)


def main(readme: Path) -> None:
    """Run the program with the installed package, and refuse another output than the
    README's.
    """
    assert Path(asyncfin.__file__).is_relative_to(sys.prefix), (
        f"{asyncfin.__file__} is not installed here"
    )
    match = FIRST.search(readme.read_text())
    assert match is not None, f"{readme} has no program with its output"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(match[1], str(readme), "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == match[2], printed.getvalue()
    print(
        f"asyncfin {asyncfin.__version__}: the README's first program prints what it "
        "shows"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
