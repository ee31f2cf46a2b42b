"""From labels to a model that answers: what `sesame finetune` does. `run` walks, the others are what it meets on its way."""
