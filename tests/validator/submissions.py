"""Hand-made slices: sound ones, and the places where a claim can be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from schemas import Completion, File, Manifest, PolicyPublished, Proof, Rollouts, Segment, Span
from tests.trainer import events
from validator.submission import Submission

VERSION = 3
GRANT = events.grant(7, version=VERSION, size=2)
STOP = GRANT.sampling.stop_ids[0]
LIMIT = GRANT.sampling.max_new_tokens
VOCABULARY = 76
WELL_FORMED = (1).to_bytes(2, "big") + bytes(256)
"""A proof of one chunk: modulus 1, every coefficient 0."""
OTHER_DIGEST = "1" * 64


def completion(*ids: int, **changes: Any) -> Completion:
    """A sound first completion, but for `changes`; it says `stop` when it ends with the stop token."""
    sent = np.array(ids or (5, STOP), np.uint32)
    fields = {
        "index": 0,
        "segments": (Segment(source="model", ids=sent),),
        "logprobs": np.full(len(sent), -0.5, np.float32),
        "spans": (span(0, len(sent)),),
        "finish": "stop" if sent[-1] == STOP else "length",
    }
    return Completion(**{**fields, **changes})


def span(start: int, stop: int, version: int = VERSION, digest: str = events.DIGEST) -> Span:
    return Span(policy_version=version, policy_digest=digest, start=start, stop=stop)


def announced(digest: str = events.DIGEST) -> PolicyPublished:
    manifest = Manifest(digest=digest, chunk_bytes=1024, files=(File(name="f", size=0, hashes=b""),))
    return PolicyPublished(lineage=0, version=VERSION, digest=digest, manifest=manifest)


def proof(*proofs: tuple[int, bytes]) -> Proof:
    """Commitments (index, bytes) of the slice; WELL_FORMED for the first completion when none are given."""
    indices, commitments = zip(*proofs or [(0, WELL_FORMED)], strict=True)
    return Proof(
        worker=GRANT.worker, task=GRANT.task, attempt=0, slice=0, indices=indices, proofs=commitments
    )


def submission(
    *completions: Completion,
    sent: float = 1.0,
    slices: int = 1,
    proven: Proof | None = None,
    named: str = "",
    **changes: Any,
) -> Submission:
    """A sound answer, `sent` seconds after its grant; `changes` are of the Submission's fields.

    proven: the proof in the stream. named: the digest that the slice names, by default that of `proven`.
    """
    proven = proven or proof()
    answer = Rollouts(
        worker=GRANT.worker, task=GRANT.task, attempt=0, slice=0, slices=slices,
        completions=completions or (completion(),), answer=bytes(32), proof=named or proven.digest(),
    )  # fmt: skip
    fields = {
        "record": events.record(answer, 9, timestamp=1000.0 + sent),
        "grant": events.record(GRANT, 4, timestamp=1000.0),
        "proof": events.record(proven, 8, timestamp=1000.0),
        "policy": announced(),
        "vocabulary": VOCABULARY,
    }
    return Submission(**{**fields, **changes})
