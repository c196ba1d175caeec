"""A worker type of its own: scores how varied the tokens of each completion are. Attach it to any run:

CAIRN_URL=nats://HOST:4222 CAIRN_RUN=NAME python examples/variety.py
"""

from bus import Component
from schemas import Rollouts, Score

component = Component(kind="filter", name="variety")


@component.on(Rollouts)  # shared with others of its kind; acked once the Score is stored
async def score(event: Rollouts) -> Score:
    return Score.of(event, [len(set(c.ids)) / max(1, len(c.ids)) for c in event.completions])


component.run()  # signing, heartbeat, retries, Ctrl-C
