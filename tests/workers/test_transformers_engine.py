from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import policy
from schemas import Sampling
from tests.policy import tiny
from workers.engine import Generated, GroupRequest
from workers.transformers_engine import TransformersEngine


def engine_of(model: torch.nn.Module, directory: Path) -> TransformersEngine:
    engine = TransformersEngine("float32")
    engine.load(tiny.folder(model, directory), 3, policy.digest(model))
    return engine


def groups(count: int = 5, size: int = 6, temperature: float = 1.0, limit: int = 12) -> list[GroupRequest]:
    """Prompts of different lengths; a stop token in about every eighth draw, another limit in every second group."""
    random = np.random.default_rng(0)
    return [
        GroupRequest(
            prompt=tiny.ids(random, 1 + 3 * at),
            seeds=random.integers(0, 2**64, size, dtype=np.uint64),
            sampling=Sampling(
                temperature=temperature, max_new_tokens=limit - at % 2, stop_ids=tuple(range(8 + at))
            ),
        )
        for at in range(count)
    ]


def flat(
    requests: list[GroupRequest], made: list[list[Generated]]
) -> list[tuple[GroupRequest, int, Generated]]:
    return [
        (request, int(seed), completion)
        for request, completions in zip(requests, made, strict=True)
        for seed, completion in zip(request.seeds, completions, strict=True)
    ]


def replayed(
    engine: TransformersEngine,
    hidden: list[torch.Tensor],
    ids: list[np.ndarray],
    seeds: list[int],
    temperature: float,
) -> list[policy.Replayed]:
    return policy.replay(engine.model.get_output_embeddings(), hidden, ids, seeds, [temperature] * len(seeds))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_a_prefill_confirms_what_was_generated(tmp_path: Path, architecture: str, temperature: float) -> None:
    engine, requests = engine_of(tiny.model(architecture), tmp_path), groups(temperature=temperature)
    made = flat(requests, engine.generate(requests))
    ids = [completion.ids for _, _, completion in made]
    assert len({len(part) for part in ids}) > 4
    hidden = policy.prefill(engine.model, [request.prompt for request, _, _ in made], ids)
    found = replayed(engine, hidden, ids, [seed for _, seed, _ in made], temperature)
    honest = torch.cat([one.margins for one in found])
    assert honest.max() < 1e-3
    assert (honest > 0).float().mean() < 0.02
    for one, (_, _, completion) in zip(found, made, strict=True):
        np.testing.assert_allclose(completion.logprobs, one.logprobs.numpy(), atol=1e-4)
    proofs = [completion.proof for _, _, completion in made]
    for errors in policy.toploc.verify(hidden, proofs):
        assert errors.exponent_mismatches.max() <= 2
        assert errors.mantissa_mean.max() < 1


def test_other_seeds_and_other_samplers_lose_the_race(tmp_path: Path) -> None:
    engine, requests = engine_of(tiny.model(), tmp_path), groups()
    made = flat(requests, engine.generate(requests))
    prompts, ids = [request.prompt for request, _, _ in made], [completion.ids for _, _, completion in made]
    seeds = [seed for _, seed, _ in made]
    hidden = policy.prefill(engine.model, prompts, ids)
    head = engine.model.get_output_embeddings()
    greedy = [head(rows).argmax(-1).numpy().astype(np.uint32) for rows in hidden]
    for cheat in (
        replayed(engine, hidden, ids, [seed + 1 for seed in seeds], 1.0),
        replayed(engine, hidden, greedy, seeds, 1.0),
        replayed(engine, hidden, ids, seeds, 3.0),
    ):
        margins = torch.cat([one.margins for one in cheat])
        assert (margins > 0.05).float().mean() > 0.2


def test_completions_end_with_the_first_stop_token_or_at_the_limit(tmp_path: Path) -> None:
    requests = groups()
    made = flat(requests, engine_of(tiny.model(), tmp_path).generate(requests))
    for request, _, completion in made:
        stops = np.isin(completion.ids, request.sampling.stop_ids)
        assert not stops[:-1].any()
        assert completion.finish == ("stop" if stops[-1] else "length")
        assert stops[-1] or len(completion.ids) == request.sampling.max_new_tokens
        assert len(completion.ids) == len(completion.logprobs)
        assert (completion.ids.dtype, completion.logprobs.dtype) == (np.uint32, np.float32)
    assert {completion.finish for _, _, completion in made} == {"stop", "length"}


def test_the_same_groups_give_the_same_bytes(tmp_path: Path) -> None:
    engine, requests = engine_of(tiny.model(), tmp_path), groups()
    one, two = (flat(requests, engine.generate(requests)) for _ in range(2))
    for (_, _, first), (_, _, second) in zip(one, two, strict=True):
        assert first.proof == second.proof
        assert first.ids.tobytes() == second.ids.tobytes()
        assert first.logprobs.tobytes() == second.logprobs.tobytes()


def test_neither_neighbours_nor_compaction_change_the_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, requests = engine_of(tiny.model(), tmp_path), groups()
    together = [[completion.ids.tolist() for completion in group] for group in engine.generate(requests)]
    monkeypatch.setattr("workers.transformers_engine.COMPACT_SHARE", 0.0)
    assert [
        [completion.ids.tolist() for completion in group] for group in engine.generate(requests)
    ] == together
    monkeypatch.setattr("workers.decoding.NOISE_ELEMENTS", 0)
    alone = [
        [completion.ids.tolist() for completion in engine.generate([request])[0]] for request in requests
    ]
    assert alone == together


def test_new_weights_are_generated_with_and_reported(tmp_path: Path) -> None:
    engine, new, requests = engine_of(tiny.model(), tmp_path / "old"), tiny.model(seed=1), groups(2)
    old = engine.generate(requests)
    assert (engine.version, engine.digest) == (3, policy.digest(tiny.model()))
    engine.load(tiny.folder(new, tmp_path / "new"), 4, policy.digest(new))
    assert (engine.version, engine.digest) == (4, policy.digest(new))
    assert engine.answer(bytes(32)) == policy.answer(new, bytes(32))
    fresh = engine_of(new, tmp_path / "fresh").generate(requests)
    swapped = engine.generate(requests)
    assert [c.proof for group in swapped for c in group] == [c.proof for group in fresh for c in group]
    assert swapped[0][0].proof != old[0][0].proof


def test_weights_that_are_not_the_announced_ones_leave_no_policy(tmp_path: Path) -> None:
    engine, new = engine_of(tiny.model(), tmp_path / "old"), tiny.model(seed=1)
    folder = tiny.folder(new, tmp_path / "new")
    stored = load_file(folder / "model.safetensors")
    stored["model.norm.weight"][0] += 1
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    for _ in range(2):
        with pytest.raises(policy.DigestMismatch):
            engine.load(folder, 4, policy.digest(new))
        assert (engine.version, engine.digest) == (-1, "")
        with pytest.raises(RuntimeError, match="holds no policy"):
            engine.generate(groups())
    engine.load(tmp_path / "old", 3, policy.digest(tiny.model()))
    assert engine.version == 3


def test_a_first_policy_that_is_not_the_announced_one_is_not_held(tmp_path: Path) -> None:
    engine = TransformersEngine("float32")
    with pytest.raises(policy.DigestMismatch):
        engine.load(tiny.folder(tiny.model(), tmp_path), 0, "0" * 64)
    assert (engine.version, engine.digest) == (-1, "")
    with pytest.raises(RuntimeError, match="holds no policy"):
        engine.generate(groups())


def test_one_token_completions(tmp_path: Path) -> None:
    requests = groups(2, limit=2)[1:]
    made = engine_of(tiny.model(), tmp_path).generate(requests)
    assert [len(completion.ids) for completion in made[0]] == [1] * 6
