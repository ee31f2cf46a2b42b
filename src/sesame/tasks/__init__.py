"""Tasks: what a model can answer."""
