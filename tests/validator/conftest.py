from collections.abc import Iterator

import pytest
import torch
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny tensors are slower in several threads, and slower still beside other tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _no_tracebacks() -> Iterator[None]:
    """Unconfigured, structlog draws every tensor of every frame of an error that is expected here."""
    with capture_logs():
        yield
