"""`asyncfin demo`: a first look at real figures, read over HTTP from the sandbox."""


async def demo() -> None:
    """Show real figures, read over HTTP from a local service that the command starts.

    No account and no network are needed.

      asyncfin demo
    """
    from asyncfin.cli.tour import show

    await show()
