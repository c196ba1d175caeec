"""A tiny language model that reverses words badly: what `cairn demo` starts from, made in seconds on one core.

It is a Qwen3 with a character tokenizer. It first learns the task from clean demonstrations, until its loss says that
it can do it: how soon that is depends on the seed. Then it learns to make mistakes, from a few demonstrations of which
most have one wrong letter. Reinforcement learning needs both: a policy that gets most words right now and
then, and samples that differ. A policy stopped halfway through learning has neither, and stays there.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import string
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers
from blake3 import blake3
from pydantic import Field
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from environments import split
from environments.reverse_text import ReverseText
from schemas.config import EnvironmentSection, Section, Share
from trainer import sft

SPECIAL = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
CHARACTERS = string.ascii_letters + string.digits + " .,:;?!+-=>"
MAX_LENGTH = 128
"""Tokens of a prompt and its completion together."""


class Tiny(Section):
    """Settings of a tiny model; everything that decides its weights."""

    environment: EnvironmentSection
    """A reverse-text environment; its held-out words are no demonstrations."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Initialises the weights, draws mistakes and batches, and splits the words as `run.seed` does."""
    layers: int = Field(default=3, ge=1)
    hidden: int = Field(default=128, ge=32, multiple_of=32)
    clean: sft.SupervisedTraining = sft.SupervisedTraining(steps=400, until=0.04, learning_rate=3e-3)
    mistaken: sft.SupervisedTraining = sft.SupervisedTraining(steps=50, learning_rate=1e-3)
    wrong: Share = 0.75
    """Share of the mistaken demonstrations that have one wrong letter."""


def make_tiny(settings: Tiny, cache: Path, progress: sft.Progress | None = None) -> Path:
    """The folder with the model (config, safetensors, tokenizer), made below `cache` unless it is there already.

    Its name is a hash of the settings and of the code that makes it. Deterministic on one machine: it
    computes in one thread, and leaves the caller's random state alone.
    """
    code = b"".join(Path(module).read_bytes() for module in (__file__, sft.__file__))
    folder = cache / blake3(settings.model_dump_json().encode() + code).hexdigest()[:16]
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=cache, prefix=".tiny-"))
    try:
        with _one_thread(), torch.random.fork_rng(devices=[]):
            model = initialise(settings)
            _warm_up(model, settings, progress)
        transformers.logging.disable_progress_bar()
        model.save_pretrained(unfinished)
        tokenizer().save_pretrained(unfinished)
        with contextlib.suppress(OSError):  # another process may have finished the same model meanwhile
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character; characters that it does not know become <unk>."""
    vocabulary = {token: index for index, token in enumerate([*SPECIAL.values(), *CHARACTERS])}
    characters = Tokenizer(WordLevel(vocabulary, unk_token=SPECIAL["unk_token"]))
    characters.pre_tokenizer = Split(Regex("."), behavior="isolated")
    characters.decoder = Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=characters,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
        **SPECIAL,
    )


def initialise(settings: Tiny) -> Qwen3ForCausalLM:
    """Random weights from the seed, float32, heads of 32."""
    characters = tokenizer()
    torch.manual_seed(settings.seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(characters),
            hidden_size=settings.hidden,
            intermediate_size=2 * settings.hidden,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.hidden // 32,
            num_key_value_heads=settings.hidden // 32,
            head_dim=32,
            max_position_embeddings=MAX_LENGTH,
            tie_word_embeddings=True,
            pad_token_id=characters.pad_token_id,
            eos_token_id=characters.eos_token_id,
            bos_token_id=None,
        )
    )


def demonstrations(settings: Tiny, wrong: float) -> list[sft.Pair]:
    """Token ids of every training word's prompt and its reverse, a share `wrong` of these with one wrong letter."""
    characters = tokenizer()
    words = ReverseText(**settings.environment.arguments)
    tasks = words.tasks()
    train, _ = split(words, settings.environment.held_out, settings.seed)
    letters = sorted(set("".join(tasks)))
    chance = random.Random(settings.seed)  # noqa: S311
    pairs: list[sft.Pair] = []
    for index in train:
        answer = list(tasks[index][::-1])
        if chance.random() < wrong:
            place = chance.randrange(len(answer))
            answer[place] = chance.choice([letter for letter in letters if letter != answer[place]])
        completion = [*characters.encode("".join(answer)), characters.eos_token_id]
        pairs.append((characters.encode(words.prompt(tasks[index])), completion))
    return pairs


def _warm_up(model: Qwen3ForCausalLM, settings: Tiny, progress: sft.Progress | None) -> None:
    total = settings.clean.steps + settings.mistaken.steps

    def clean(step: int, _: int, loss: float) -> None:
        if progress:
            progress(step, total, loss)

    def mistaken(step: int, _: int, loss: float) -> None:
        if progress:
            progress(settings.clean.steps + step, total, loss)

    sft.fine_tune(model, demonstrations(settings, 0.0), settings.clean, settings.seed, clean)
    sft.fine_tune(model, demonstrations(settings, settings.wrong), settings.mistaken, settings.seed, mistaken)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
