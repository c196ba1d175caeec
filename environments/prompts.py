"""Between an environment's text and a model's token ids: prompts made once, completions read once.

Everything in between travels as ids; nothing is tokenised a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from schemas import Sampling
from schemas.config import ConfigError, SamplingSection


class Prompts:
    """The environment's tasks through the model's tokenizer and chat template.

    stop_ids: the ids at which a completion ends (the tokenizer's end-of-sequence token).
    """

    def __init__(self, environment: Any, tokenizer: Any) -> None:
        self._environment, self._tokenizer = environment, tokenizer
        self._tasks: Sequence[Any] = environment.tasks()
        if tokenizer.eos_token_id is None:
            raise ConfigError(
                "the model's tokenizer has no end-of-sequence token; set one in its tokenizer_config.json"
            )
        self.stop_ids: tuple[int, ...] = (int(tokenizer.eos_token_id),)
        self.ids = lru_cache(maxsize=4096)(self._ids)

    def __len__(self) -> int:
        """How many tasks there are."""
        return len(self._tasks)

    def _ids(self, index: int) -> np.ndarray:
        """Token ids of task `index`, uint32, shape [P]."""
        prompt = self._environment.prompt(self._tasks[index])
        if isinstance(prompt, str):
            ids = self._tokenizer.encode(prompt)
        else:
            ids = self._tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        return np.asarray(ids, dtype=np.uint32)

    def sampling(self, section: SamplingSection) -> Sampling:
        """How the run's configuration samples from this model."""
        return Sampling(
            temperature=section.temperature, max_new_tokens=section.max_new_tokens, stop_ids=self.stop_ids
        )

    def text(self, completion: Sequence[int]) -> str:
        """What the environment judges: the completion's text without its stop token."""
        ids = list(completion)
        return str(self._tokenizer.decode(ids[:-1] if ids and ids[-1] in self.stop_ids else ids))
