from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import policy
from tests.policy import tiny


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_file_engine_and_mapping_have_one_digest(tmp_path: Path, architecture: str, tied: bool) -> None:
    model = tiny.model(architecture, tied=tied)
    template = tiny.folder(model, tmp_path / "template")
    policy.save(model, template, tmp_path / "saved")
    assert ("lm_head.weight" in policy.tensors(model)) is not tied
    digests = {
        policy.digest(model), policy.digest(policy.tensors(model)), policy.digest(policy.load(tmp_path / "saved")),
        policy.file_digest(template), policy.file_digest(tmp_path / "saved"),
    }  # fmt: skip
    assert len(digests) == 1


def test_every_tensor_counts(tmp_path: Path) -> None:
    model = tiny.model()
    seen = {policy.digest(model)}
    for tensor in policy.tensors(model).values():
        with torch.no_grad():
            tensor.view(-1)[-1] += 1
        seen.add(policy.digest(model))
    assert len(seen) == 1 + len(policy.tensors(model))
    assert policy.digest(model.to(torch.bfloat16)) not in seen


def test_sharded_files_have_the_same_digest(tmp_path: Path) -> None:
    model = tiny.model()
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert policy.file_digest(tmp_path) == policy.digest(model)


@pytest.mark.parametrize("tied", [True, False])
def test_swap_changes_the_live_model(tmp_path: Path, tied: bool) -> None:
    live, new = tiny.model(seed=0, tied=tied), tiny.model(seed=1, tied=tied)
    ids = torch.arange(10).unsqueeze(0)
    policy.swap(live, tiny.folder(new, tmp_path), policy.digest(new))
    assert policy.digest(live) == policy.digest(new)
    with torch.no_grad():
        assert torch.equal(live(ids).logits, new(ids).logits)


def test_swap_refuses_weights_that_were_not_announced(tmp_path: Path) -> None:
    live, new = tiny.model(seed=0), tiny.model(seed=1)
    announced = policy.digest(new)
    tiny.folder(new, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    stored["model.norm.weight"][3] += 1
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(policy.DigestMismatch, match=announced):
        policy.swap(live, tmp_path, announced)


@pytest.mark.parametrize(
    ("other", "tensor"),
    [
        (tiny.model("llama"), "k_norm"),
        (tiny.model(tied=False), "lm_head"),
        (tiny.model().to(torch.bfloat16), "embed"),
    ],
)
def test_swap_touches_nothing_for_another_architecture(
    tmp_path: Path, other: torch.nn.Module, tensor: str
) -> None:
    live = tiny.model()
    before = policy.digest(live)
    with pytest.raises(policy.DigestMismatch, match=f"another architecture or dtype.*{tensor}"):
        policy.swap(live, tiny.folder(other, tmp_path), policy.digest(other))
    assert policy.digest(live) == before
