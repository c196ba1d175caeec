import time

import pytest

from bus import Record
from relay import Fixed, Relays
from relay.sources import FRESH_SECONDS, MAX_RELAYS, relay_url
from schemas import Heartbeat, PolicyPublished
from tests.relay.nodes import DIGEST

SERVER_CLOCK = 1_700_000_000.0


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when the test says so."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def key(number: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    return "U" + "".join(letters[number // 32**at % 32] for at in range(55))


def heartbeat(number: int, url: str, at: float, parent: str = "http://origin:1") -> Record[Heartbeat]:
    event = Heartbeat(kind="relay", node=key(number), url=url, parent=parent)
    subject = f"run.{event.subject_below()}"
    return Record(1, event, subject, SERVER_CLOCK + at, key(number), "")


@pytest.mark.parametrize("url", ["http://10.0.0.1:7070", "https://relay.example", "http://[::1]:80/weights"])
def test_urls_of_relays(url):
    assert relay_url(url) == relay_url(url + "/") == url


@pytest.mark.parametrize(
    "url",
    ["", "relay:1", "file:///etc/passwd", "http://", "http://user:word@host", "http://h/?q", "http://h/#f",
     "http://h:99999", "http://" + "h" * 256],
)  # fmt: skip
def test_urls_of_nothing_else(url):
    with pytest.raises(ValueError, match=r".+"):
        relay_url(url)
    with pytest.raises(ValueError, match=r".+"):
        Fixed(url)


def test_fresh_relays_come_first_and_the_origin_last(clock):
    relays = Relays()
    relays.heard(heartbeat(1, "http://a:1", 0))
    relays.heard(heartbeat(2, "http://b:1", 0))
    relays.heard(heartbeat(3, "http://origin:1", 0, parent=""))
    manifest = {"digest": DIGEST, "chunk_bytes": 1024, "files": [{"name": "f", "size": 0, "hashes": b""}]}
    holders = ["http://origin:1", "http://elsewhere:1", "ftp://no", "http://a:1"]
    relays.announced(PolicyPublished(lineage=0, version=0, digest=DIGEST, manifest=manifest, holders=holders))
    assert relays.urls() == ["http://a:1", "http://b:1"]
    assert relays.last_resort() == ["http://origin:1", "http://elsewhere:1"]


def test_a_relay_that_is_silent_or_stops_is_dropped(clock):
    relays = Relays()
    relays.heard(heartbeat(1, "http://old:1", -2 * FRESH_SECONDS))
    relays.heard(heartbeat(2, "http://a:1", 0))
    relays.heard(heartbeat(3, "http://b:1", 0))
    assert relays.urls() == ["http://a:1", "http://b:1"], "by the server's clock, the first is long gone"
    relays.heard(heartbeat(3, "", 0))
    assert relays.urls() == ["http://a:1"]
    clock[0] += FRESH_SECONDS + 1
    assert relays.urls() == []
    relays.heard(heartbeat(2, "http://a:1", FRESH_SECONDS + 1))
    assert relays.urls() == ["http://a:1"]


def test_many_identities_do_not_count_more_or_fill_the_memory(clock):
    relays = Relays()
    for number in range(MAX_RELAYS + 10):
        relays.heard(heartbeat(number, f"http://r{number % 3}:1", 0))
    assert len(relays.urls()) == 3
    assert len(relays._nodes) == MAX_RELAYS
