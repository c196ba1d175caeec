import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import policy
from schemas.config import ConfigError
from tests.policy import tiny


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_equal_weights_give_equal_files(tmp_path: Path) -> None:
    template = tiny.folder(tiny.model(), tmp_path / "template")
    policy.save(tiny.model(seed=1), template, tmp_path / "one")
    policy.save(policy.load(tmp_path / "one"), tmp_path / "one", tmp_path / "two")
    policy.save(policy.tensors(tiny.model(seed=1)), template, tmp_path / "three")
    assert set(files(tmp_path / "one")) == {"model.safetensors", "config.json"}
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "three")


def test_the_published_dtype_is_that_of_the_weights(tmp_path: Path) -> None:
    template = tiny.folder(tiny.model(), tmp_path / "template")
    policy.save(tiny.model().to(torch.bfloat16), template, tmp_path / "half")
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "bfloat16"
    assert policy.load(tmp_path / "half").dtype == torch.bfloat16
    assert policy.load(tmp_path / "half", "float32").dtype == torch.float32


def test_the_tokenizer_travels_with_the_weights(tmp_path: Path) -> None:
    template = tiny.folder(tiny.model(), tmp_path / "template")
    words = Tokenizer(WordLevel({"a": 0, "b": 1, "<eos>": 2}, unk_token="<eos>"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>").save_pretrained(template)
    policy.save(tiny.model(), template, tmp_path / "saved")
    assert policy.tokenizer(tmp_path / "saved").encode("b") == [1]
    assert policy.vocabulary(tmp_path / "saved") == tiny.VOCABULARY


def test_only_safetensors_are_read(tmp_path: Path) -> None:
    tiny.folder(tiny.model(), tmp_path)
    torch.save(tiny.model().state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(OSError, match="safetensors"):
        policy.load(tmp_path)


def test_a_model_that_changes_its_logits_is_refused(tmp_path: Path) -> None:
    from transformers import GraniteConfig, GraniteForCausalLM

    shape = GraniteConfig(
        vocab_size=20, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, logits_scaling=8.0, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    GraniteForCausalLM(shape).save_pretrained(tmp_path)
    with pytest.raises(policy.UnsupportedModel, match="Granite"):
        policy.load(tmp_path)


def test_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    assert policy.folder(str(tmp_path)) == tmp_path
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"policy.model = 'no/such-model' is no local folder"):
        policy.folder("no/such-model")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", r"no configuration \(config\.json\)"),
        ("model.safetensors", r"no weights \(\*\.safetensors\)"),
        (
            "tokenizer.json",
            r"no tokenizer \(tokenizer\.json or tokenizer\.model or vocab\.json or vocab\.txt\)",
        ),
    ],
)
def test_a_folder_that_is_no_whole_model_is_one_clear_line(
    tmp_path: Path, missing: str, message: str
) -> None:
    for name in {"config.json", "model.safetensors", "tokenizer.json"} - {missing}:
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=message):
        policy.folder(str(tmp_path))
