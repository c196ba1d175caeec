"""One realistic instance of every event, as of one task's way through a run: from the grant to the policy."""

from __future__ import annotations

import numpy as np
from blake3 import blake3

from schemas import (
    AuditKeyCommitted,
    AuditKeyRevealed,
    BatchFormed,
    Check,
    Completion,
    Control,
    Credited,
    DeadLetter,
    EvalCompleted,
    Event,
    File,
    GroupRef,
    Heartbeat,
    Judgement,
    LineageStarted,
    Manifest,
    PolicyPublished,
    Proof,
    Quarantined,
    Reinstated,
    Rollouts,
    RunCreated,
    RunEnded,
    Sampling,
    Score,
    Segment,
    Slashed,
    Span,
    StepCompleted,
    TaskClosed,
    TaskGranted,
    Verdict,
    WorkRequested,
    WorkReturned,
    WriterStarted,
)

WORKER = "UCFIRY65OQE7DFP5KLNS2PF2LVZMUZYJX4OZIEQ36N2IQANUB5XVZ45L"
VALIDATOR = "UCATS5YOVB6ROX2WUNKGNQ2MP3GMXDMKSG2O4N5CLX3A6W4PZGZZJPJO"
TRAINER = "UDWUSKGGFDI4FRXK5EBTRECZSVQSSWJHHJOGH6JWG3AUMFFMQ435C2U4"


def _hash(text: str) -> bytes:
    return blake3(text.encode()).digest()


def _digest(text: str) -> str:
    return blake3(text.encode()).hexdigest()


COMPLETIONS = (
    Completion(
        index=0,
        segments=(Segment(source="model", ids=np.array([11, 7, 29, 2])),),
        logprobs=np.array([-0.25, -1.5, -0.0625, -0.5]),
        spans=(Span(policy_version=3, policy_digest=_digest("policy 3"), start=0, stop=4),),
        finish="stop",
    ),
    Completion(  # a second turn, and a policy that changed in between
        index=1,
        segments=(
            Segment(source="model", ids=np.array([11, 7])),
            Segment(source="environment", ids=np.array([40, 41, 42])),
            Segment(source="model", ids=np.array([29, 30, 31])),
        ),
        logprobs=np.array([-0.25, -1.5, -3.0, -0.125, -0.75]),
        spans=(
            Span(policy_version=3, policy_digest=_digest("policy 3"), start=0, stop=2),
            Span(policy_version=4, policy_digest=_digest("policy 4"), start=2, stop=5),
        ),
        finish="length",
    ),
)

PROOF = Proof(
    worker=WORKER,
    task="42",
    attempt=0,
    slice=0,
    indices=(0, 1),
    proofs=((65497).to_bytes(2, "big") + bytes(range(256)), (65497).to_bytes(2, "big") + bytes(256)),
)

MANIFEST = Manifest(
    digest=_digest("policy 4"),
    chunk_bytes=1 << 20,
    files=(
        File(name="config.json", size=734, hashes=_hash("config")),
        File(name="model.safetensors", size=2_400_000, hashes=_hash("0") + _hash("1") + _hash("2")),
    ),
)

GROUP = GroupRef(
    worker=WORKER,
    task="42",
    attempt=0,
    policy_version=3,
    rollouts=np.array([1200, 1201]),
    verdicts=np.array([1190, 1195]),
)

_EXAMPLES: tuple[Event, ...] = (
    RunCreated(
        id="0" * 32,
        run="demo",
        config={
            "policy": {"model": "Qwen/Qwen3-0.6B", "dtype": "float32"},
            "optimizer": {"learning_rate": 3e-7, "betas": [0.9, 0.99]},
            "lag": {"max_lag": 2},
        },
        software={"cairn": "0.1.0", "torch": "2.13.0"},
        trusted={"trainer": (TRAINER,), "validator": (VALIDATOR,)},
        commitment=_hash("the run's secret"),
    ),
    LineageStarted(
        lineage=1, step=8, version=12, digest=_digest("policy 12"), reason="step 8 gave another digest"
    ),
    RunEnded(reason="finished", steps=100, version=100, digest=_digest("policy 100"), secret=_hash("secret")),
    WriterStarted(id="1" * 32, epoch=2, writes="batches"),
    WorkRequested(
        id="2" * 32,
        worker=WORKER,
        name="attic",
        groups=8,
        environments=("reverse-text",),
        policy_version=3,
        engine="transformers 5.24.0",
        stack="torch 2.13.0 cpu float32",
    ),
    WorkReturned(worker=WORKER, task="42", attempt=0, reason="the policy is no longer on any relay"),
    TaskGranted(
        worker=WORKER,
        task="42",
        attempt=0,
        environment="reverse-text",
        index=1007,
        prompt=np.array([1, 20, 21, 22, 3]),
        seeds=np.array([2**64 - 1, 17], dtype=np.uint64),
        sampling=Sampling(temperature=1.0, max_new_tokens=5, stop_ids=(2,)),
        policy_version=3,
        policy_digest=_digest("policy 3"),
        nonce=_hash("nonce"),
        seconds=600.0,
    ),
    TaskClosed(worker=WORKER, task="42", attempt=0, reason="expired", detail="no answer in 600 s"),
    PROOF,
    Rollouts(
        worker=WORKER,
        task="42",
        attempt=0,
        slice=0,
        slices=2,
        completions=COMPLETIONS,
        answer=_hash("possession"),
        proof=PROOF.digest(),
    ),
    Score(ranker=VALIDATOR, worker=WORKER, task="42", attempt=0, slice=0, scores=np.array([0.5, 0.75])),
    Verdict(
        worker=WORKER,
        task="42",
        attempt=0,
        slice=0,
        rollouts_sequence=1200,
        judgements=(
            Judgement(
                index=0,
                outcome="accepted",
                reward=0.75,
                metrics={"exact": 1.0},
                checks=(
                    Check(name="exponent_mismatches", passed=True, value=2.0, limit=38.0),
                    Check(name="replay", passed=True, value=0.0, limit=0.1),
                ),
                tokens=4,
            ),
            Judgement(
                index=1,
                outcome="rejected",
                checks=(
                    Check(name="end", passed=False, detail="ends before the limit without a stop token"),
                ),
                tokens=5,
            ),
        ),
    ),
    BatchFormed(
        lineage=0,
        step=4,
        from_version=4,
        groups=(GROUP,),
        advantages=np.array([0.5, -0.5]),
        folded={"ROLLOUTS": 1201, "STANDINGS": 77, "VERDICTS": 1195},
    ),
    StepCompleted(
        lineage=0,
        step=4,
        from_version=4,
        version=5,
        digest_before=_digest("policy 4"),
        digest_after=_digest("policy 5"),
        metrics={"loss": -0.03125, "reward": 0.625},
    ),
    PolicyPublished(
        lineage=0,
        version=4,
        digest=_digest("policy 4"),
        manifest=MANIFEST,
        holders=("http://127.0.0.1:7071",),
    ),
    EvalCompleted(
        evaluator=VALIDATOR,
        version=4,
        digest=_digest("policy 4"),
        environment="reverse-text",
        prompts=256,
        samples=256,
        metrics={"exact": 0.8125},
    ),
    Slashed(node=WORKER, reason="tokens of another model, 3 times", evidence=(1190, 1195, 1202)),
    Quarantined(node=WORKER, reason="two answers to one grant", evidence=(1190,)),
    Reinstated(id="3" * 32, node=WORKER, reason="memory replaced"),
    Credited(node=WORKER, step=4, tokens=9),
    AuditKeyCommitted(node=VALIDATOR, commitment=_hash("audit key")),
    AuditKeyRevealed(node=VALIDATOR, audit_key=_hash("the audit key itself")),
    Heartbeat(
        id="4" * 32,
        kind="relay",
        node=WORKER,
        name="attic",
        state="waiting for a policy",
        waiting=True,
        seconds=12.5,
        capacity={"bytes_per_s": 1.5e8},
        alarms=("disk almost full",),
        url="http://127.0.0.1:7071",
        parent="http://127.0.0.1:7070",
        versions=(2, 3, 4),
    ),
    Control(id="5" * 32, action="pause", reason="maintenance"),
    DeadLetter(
        source="ROLLOUTS",
        sequence=1203,
        original_subject=f"demo.rollouts.{WORKER}.42.0.1",
        consumer="validator",
        reason="the payload is not zstd",
        deliveries=5,
    ),
)

EXAMPLES: dict[str, Event] = {type(event).__name__: event for event in _EXAMPLES}
"""By the event's name; tests/schemas/test_golden.py checks that none is missing."""
