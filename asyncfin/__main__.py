"""`python -m asyncfin` is the command `asyncfin`."""

from asyncfin.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
