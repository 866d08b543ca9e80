"""Who may decode now. msgspec holds the GIL, so decoding in threads would stop the loop just the same:
it goes in slices on the loop instead, one response at a time, and others run between the slices.
"""

import asyncio

_turns: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}


def decoding_turn() -> asyncio.Lock:
    """Return the running loop's lock for whoever decodes a response; hold it and yield between slices."""
    loop = asyncio.get_running_loop()
    if loop not in _turns:
        for each in list(_turns):  # in one step: there may be a loop in another thread
            if each.is_closed():
                _turns.pop(each, None)
        _turns[loop] = asyncio.Lock()
    return _turns[loop]
