"""The policy as worker, validator and trainer all see it: weights, log-probs, seeded sampling and its proofs."""

from policy import possession, toploc
from policy.folder import folder, save_weights, vocabulary
from policy.model import (
    DigestMismatch,
    UnsupportedModel,
    digest,
    file_digest,
    load,
    require,
    save,
    swap,
    tensors,
    tokenizer,
)
from policy.noise import NoiseTableError, as_seeds, gumbel, gumbel_of
from policy.prefill import Prefilled, prefill
from policy.sampling import replay, scores, token_logprobs
from policy.toploc import MalformedProof, NonFiniteHidden

__all__ = [
    "DigestMismatch", "MalformedProof", "NoiseTableError", "NonFiniteHidden", "Prefilled", "UnsupportedModel",
    "as_seeds", "digest", "file_digest", "folder", "gumbel", "gumbel_of", "load", "possession", "prefill", "replay",
    "require", "save", "save_weights", "scores", "swap", "tensors", "token_logprobs", "tokenizer", "toploc",
    "vocabulary",
]  # fmt: skip
