"""Sesame: pre-train, transfer, distill, explain and serve language models on your own text."""

__version__ = "0.1.0"
