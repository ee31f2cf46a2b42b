"""Seeded models of transformers, in float64, whose texts end at different lengths."""

from typing import Any

import torch

VOCAB, PAD, END, START = 29, 0, 1, 2
FAMILIES = ["gpt2", "t5", "bart", "marian"]


def stranger(family: str, seed: int = 0, lift: float = 5.5) -> Any:
    """Random weights that say different things; the end token is a little likelier than others."""
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        GPT2Config,
        GPT2LMHeadModel,
        MarianConfig,
        MarianMTModel,
        T5Config,
        T5ForConditionalGeneration,
    )

    tokens: dict[str, Any] = {"vocab_size": VOCAB, "pad_token_id": PAD, "eos_token_id": END, "bos_token_id": START}
    both: dict[str, Any] = tokens | {
        "decoder_start_token_id": START,
        "forced_eos_token_id": None,
        "d_model": 16,
        "tie_word_embeddings": False,
    }
    layers: dict[str, Any] = {
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "max_position_embeddings": 64,
    }
    if family == "gpt2":
        model: Any = GPT2LMHeadModel(
            GPT2Config(**tokens, n_embd=16, n_layer=2, n_head=2, n_positions=64, tie_word_embeddings=False)
        )
    elif family == "t5":
        t5 = T5Config(**both, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
        model = T5ForConditionalGeneration(t5)
    elif family == "bart":
        model = BartForConditionalGeneration(BartConfig(**both, **layers))
    else:
        model = MarianMTModel(MarianConfig(**both, **layers))
    _shake(model.double().eval(), seed, lift)
    return model


def _shake(model: Any, seed: int, lift: float) -> None:
    """Large weights make the next token depend on all; a bias says how soon a text ends, and never pads."""
    luck = torch.Generator().manual_seed(seed)
    model.lm_head = torch.nn.Linear(16, VOCAB, dtype=torch.float64)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name and "ln_" not in name:
                quiet = weight.dim() == 1 or "encoder_attn" in name or "EncDecAttention" in name
                size = 0.3 if quiet else 1.5 if "embed" in name or "wte" in name or "shared" in name else 0.8
                weight.copy_(torch.randn(weight.shape, generator=luck, dtype=torch.float64) * size)
        model.lm_head.weight[END] *= 0.3
        model.lm_head.bias[END] += lift
        model.lm_head.bias[PAD] = -1000


def prompts(seed: int) -> list[list[int]]:
    """Four of different lengths."""
    luck = torch.Generator().manual_seed(100 + seed)
    return [torch.randint(3, VOCAB, (n,), generator=luck).tolist() for n in (5, 1, 7, 3)]


def theirs(model: Any, rows: list[list[int]], **settings: Any) -> tuple[list[list[int]], list[float] | None]:
    """Their new tokens, with the end token where it came, and the scores of a beam; a decoder's prompts are padded left."""
    width, both = max(map(len, rows)), model.config.is_encoder_decoder
    sides = [(row, [PAD] * (width - len(row))) for row in rows]
    ids = torch.tensor([row + pad if both else pad + row for row, pad in sides])
    answer = model.generate(
        ids,
        attention_mask=(ids != PAD).long(),
        return_dict_in_generate=True,
        output_scores=True,
        do_sample=settings.pop("do_sample", False),
        **settings,
    )
    new = answer.sequences[:, 1 if both else width :].tolist()
    texts = [row[: row.index(END) + 1] if END in row else [id for id in row if id != PAD] for row in new]
    scores = getattr(answer, "sequences_scores", None)
    return texts, None if scores is None else scores.tolist()
