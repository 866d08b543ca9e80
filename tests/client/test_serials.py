"""An observer finds the beginning of what has ended by its serial, whatever it is."""

from asyncfin import Annual, Client, FiscalRange, Select
from asyncfin.events import Event, QuestionStarted, RequestStarted
from asyncfin.sandbox import Sandbox
from tests.generate import generate

DATASET = generate(12, series=20)


async def test_questions_and_attempts_have_no_serial_in_common() -> None:
    """Counted apart, the second question would have the serial of an attempt of the first."""
    events: list[Event] = []
    async with (
        Sandbox(DATASET) as sandbox,
        Client(sandbox.base_url, sandbox.token, observers=[events.append]) as client,
    ):
        for periods in (FiscalRange(), Annual()):
            await client.query(DATASET.entity_id, Select(), periods)
    started = [each for each in events if isinstance(each, QuestionStarted | RequestStarted)]
    assert [type(each) for each in started].count(QuestionStarted) == 2
    serials = [each.serial for each in started]
    assert serials == sorted(set(serials))
