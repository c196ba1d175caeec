"""Cuts the answer to one grant into messages that fit the bus: a proof and the rollouts of each slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from schemas import Completion, Proof, Rollouts, Segment, Span, TaskGranted
from workers.engine import Generated

SLICE_BYTES = 512 * 1024
"""Upper bound of a slice's tokens and log-probs before compression; the bus takes messages of 1 MB."""
TOKEN_BYTES = 8
"""A uint32 id and a float32 log-prob."""


@dataclass(frozen=True)
class Answer:
    """What one grant came to. completions: in index order. possession: the answer to the grant's nonce."""

    grant: TaskGranted
    completions: Sequence[Generated]
    possession: bytes


def slices(answer: Answer) -> Iterator[tuple[Proof, Rollouts]]:
    """Pairs of messages, the proof to be sent before its rollouts."""
    grant, parts = answer.grant, list(_parts(answer.completions))
    for at, part in enumerate(parts):
        names: dict[str, Any] = {
            "worker": grant.worker,
            "task": grant.task,
            "attempt": grant.attempt,
            "slice": at,
        }
        indices = tuple(index for index, _ in part)
        proof = Proof(**names, indices=indices, proofs=tuple(made.proof for _, made in part))
        yield (
            proof,
            Rollouts(
                **names,
                slices=len(parts),
                completions=tuple(completion(grant, index, made) for index, made in part),
                answer=answer.possession,
                proof=proof.digest(),
            ),
        )


def _parts(completions: Sequence[Generated]) -> Iterator[list[tuple[int, Generated]]]:
    part: list[tuple[int, Generated]] = []
    room = SLICE_BYTES
    for index, made in enumerate(completions):
        size = TOKEN_BYTES * len(made.ids) + len(made.proof)
        if part and size > room:
            yield part
            part, room = [], SLICE_BYTES
        part.append((index, made))
        room -= size
    yield part


def completion(grant: TaskGranted, index: int, made: Generated) -> Completion:
    """What an engine generated, as the `index`-th completion of a grant."""
    span = Span(
        policy_version=grant.policy_version, policy_digest=grant.policy_digest, start=0, stop=len(made.ids)
    )
    return Completion(
        index=index,
        segments=(Segment(source="model", ids=made.ids),),
        logprobs=made.logprobs,
        spans=(span,),
        finish=made.finish,
    )
