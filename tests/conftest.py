"""What holds for every test: the fixtures of a real server and a run, and no deadline for single examples."""

from __future__ import annotations

from hypothesis import settings

from bus.testing import nats_server, run

__all__ = ["nats_server", "run"]

# On shared cores a single example may take any time; pytest's own limit catches what hangs.
settings.register_profile("cairn", deadline=None)
settings.load_profile("cairn")
