"""Random questions about real companies: all that the page shows is the library's."""

import random
from typing import Any

import pytest

from tests.web.random_questions import DATA, asked, visiting
from tests.web.test_browser import pytestmark

__all__ = ["pytestmark"]

FILES = sorted(DATA.glob("*.json.gz"))


@pytest.mark.skipif(not FILES, reason="../shared/data is not there")
async def test_what_the_page_shows_of_random_questions_is_the_librarys(chromium: Any) -> None:
    """Labels, texts, ticks, readings, cells, downloads and pictures; a seed repeats them."""
    seed = random.randrange(10**6)
    files = random.Random(seed).sample(FILES, 5)
    async with visiting(chromium, files) as visitor:
        wrong = await asked(visitor, seed, range(6))
    assert not wrong, "\n".join([f"seed {seed}, companies {[each.name for each in files]}", *wrong])
