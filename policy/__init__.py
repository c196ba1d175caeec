"""The policy as worker, validator and trainer all see it: weights, log-probs, seeded sampling and its proofs."""

from policy import toploc
from policy.model import UnsupportedModel, device, folder, load, save, tokenizer, vocabulary
from policy.noise import NoiseTableError, as_seeds, gumbel, gumbel_of
from policy.possession import answer
from policy.prefill import prefill
from policy.sampling import Replayed, replay, scores, token_logprobs
from policy.toploc import MalformedProof, NonFiniteHidden
from policy.weights import DigestMismatch, check_digest, digest, file_digest, swap, tensors

__all__ = [
    "DigestMismatch", "MalformedProof", "NoiseTableError", "NonFiniteHidden", "Replayed", "UnsupportedModel", "answer",
    "as_seeds", "check_digest", "device", "digest", "file_digest", "folder", "gumbel", "gumbel_of", "load", "prefill",
    "replay", "save", "scores", "swap", "tensors", "token_logprobs", "tokenizer", "toploc", "vocabulary",
]  # fmt: skip
