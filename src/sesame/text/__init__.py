"""Words to ids: load a tokenizer that exists, or train one on your own text."""

from sesame.text.tokenizer import ROLES, Encoding, Tokenizer

__all__ = ["ROLES", "Encoding", "Tokenizer"]
