from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.one_thread import one_thread

__all__ = ["one_thread"]


@pytest.fixture(autouse=True)
def _no_tracebacks() -> Iterator[None]:
    """Unconfigured, structlog draws every tensor of every frame of an error that is expected here."""
    with capture_logs():
        yield
