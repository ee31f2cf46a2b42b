"""Answers over HTTP: `sesame serve`."""
