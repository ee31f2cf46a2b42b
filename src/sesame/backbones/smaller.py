"""A smaller sister of an encoder that reads the same embeddings: the generator of replaced-token detection."""

from dataclasses import replace

from sesame.backbones.encoder import EncoderConfig


def smaller(config: EncoderConfig, width: float, depth: float) -> EncoderConfig:
    """Shares of width, feed-forward, heads and layers; heads keep their size, of which there is at least one."""
    narrow = max(1, round(config.width * width))
    heads = max(1, narrow // (config.width // config.heads))
    layers = max(1, round(config.depth * depth))
    return replace(
        config,
        width=narrow,
        depth=layers,
        local_layers=tuple(number for number in config.local_layers if number < layers),
        heads=next(count for count in range(heads, 0, -1) if narrow % count == 0),
        inner=max(1, round((config.inner or 4 * config.width) * narrow / config.width)),
        embedding_width=config.embedding_width or config.width,
    )
