"""Words to ids: load a tokenizer that exists, or train one on your own text."""

from sesame.text.tokenizer import ROLES, Encoding, Tokenizer
from sesame.text.train import sample_texts, train_tokenizer

__all__ = ["ROLES", "Encoding", "Tokenizer", "sample_texts", "train_tokenizer"]
