"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# On shared cores a single example may take any time; pytest's own limit catches what hangs.
settings.register_profile("cairn", deadline=None)
settings.load_profile("cairn")
