"""ModernBERT: our numbers are transformers', in both directions, and what we cannot compute is refused.

transformers turns queries and keys in 32 bits even in a model of 64. So the exact comparison lets the oracle turn them in 64
bits, by the same formula; as it is, it agrees to the rounding of 32 bits.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.modernbert import modeling_modernbert as theirs

from sesame.backbones import Encoder, EncoderConfig
from sesame.backbones.fast import FastEncoder
from sesame.backbones.flops import Work, flops_per_token
from sesame.checkpoint.folder import Parts, load_parts, save_parts
from sesame.checkpoint.hf import find_family
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.finetuning.transfer import fitted
from sesame.objectives import MaskedLMHead
from sesame.recipe import recipe_names, resolve
from sesame.tasks import Item, TaskConfig
from tests.backbones.test_flops import LENGTH, counted, made
from tests.checkpoint.test_bert_parity import noisy
from tests.checkpoint.test_task_parity import AUTO, CASES, items_of, ours, real

EXACT, ROUNDED = 1e-9, 2e-5
TINY: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "cls_token_id": None,
    "sep_token_id": None, "global_attn_every_n_layers": 1,
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one layer": {"num_hidden_layers": 1},
    "three heads": {"hidden_size": 30, "num_attention_heads": 3, "intermediate_size": 17},
    "vocabulary of 64": {"vocab_size": 64},
    "all biases": dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True),
    "another eps": {"norm_eps": 1e-3},
    "other angles": {"global_rope_theta": 10_000.0},
    "no output bias": {"decoder_bias": False},
    "untied": {"tie_word_embeddings": False},
}
MODERN = EncoderConfig(
    vocab=70, width=16, depth=2, heads=2, inner=20, max_length=64, segments=0, positions="rotary", order="pre",
    embedding_norm=True, activation="geglu", bias=False, dropout=0.0, attention_dropout=0.0, eps=1e-5,
)  # fmt: skip


@pytest.fixture(params=[True, False], ids=["64 bits", "as it is"])
def tolerance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """With the oracle's rotations in 64 bits, and without."""
    if not request.param:
        return ROUNDED

    def angles(self: Any, x: Tensor, at: Tensor, layer_type: str) -> tuple[Tensor, Tensor]:
        size = self.config.hidden_size // self.config.num_attention_heads
        base = self.config.rope_parameters[layer_type]["rope_theta"]
        turned = at[..., None].double() / base ** (torch.arange(0, size, 2).double() / size)
        both = torch.cat((turned, turned), -1)
        return both.cos(), both.sin()

    def turn(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, ...]:
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return tuple(x * cos + theirs.rotate_half(x) * sin for x in (q, k))

    monkeypatch.setattr(theirs.ModernBertRotaryEmbedding, "forward", angles)
    monkeypatch.setattr(theirs, "apply_rotary_pos_emb", turn)
    return EXACT


def ragged(vocab: int, length: int = 13) -> tuple[Batch, dict[str, Tensor]]:
    lengths = torch.tensor([length, length // 2, 1])
    real = torch.arange(length)[None] < lengths[:, None]
    ids = torch.randint(8, vocab, (3, length), generator=torch.Generator().manual_seed(1)).masked_fill(~real, 0)
    return Batch(ids, lengths), {"input_ids": ids, "attention_mask": real.long()}


@torch.no_grad()
def assert_alike(parts: Parts, model: Any, vocab: int, tolerance: float) -> None:
    batch, inputs = ragged(vocab)
    where = inputs["attention_mask"].bool()
    encoded = parts.backbone.eval()(batch)
    logits = parts.heads["mlm"](encoded.last, parts.backbone.token_table())[..., :vocab]
    said = model.double().eval()(**inputs).logits
    assert (logits - said)[where].abs().max() < tolerance
    assert said[where].std() > 0.1  # there is something to be equal


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_their_model_here(shape: str, tolerance: float, tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = transformers.ModernBertConfig(**TINY | SHAPES[shape])
    model = noisy(transformers.ModernBertForMaskedLM(config).double())
    model.save_pretrained(tmp_path)
    parts = load_parts(tmp_path)
    assert not parts.unused
    assert_alike(parts, model, config.vocab_size, tolerance)


@pytest.mark.parametrize("bias", [False, True])
def test_our_model_there(bias: bool, tolerance: float, tmp_path: Path) -> None:
    torch.manual_seed(4)
    config = replace(MODERN, bias=bias)
    head = MaskedLMHead(16, 16, 70, "gelu", 1e-5, bias=bias)
    parts = Parts(noisy(Encoder(config).double()), {"mlm": noisy(head.double())})
    save_parts(tmp_path, parts)
    model, report = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path, output_loading_info=True, dtype=torch.float64
    )
    assert isinstance(model, transformers.ModernBertForMaskedLM)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert_alike(parts, model, 70, tolerance)
    assert load_parts(tmp_path).backbone.config == config


@pytest.mark.parametrize(
    ("case", "pooling"),
    [
        ("three labels", "cls"),
        ("default labels", "mean"),
        ("several labels", "cls"),
        ("regression", "mean"),
        ("tags", "cls"),
        ("questions", "cls"),
    ],
)
def test_tasks_both_ways(case: str, pooling: str, tolerance: float, tmp_path: Path) -> None:
    kind, labels = CASES[case]
    torch.manual_seed(7)
    config = transformers.ModernBertConfig(**TINY, classifier_pooling=pooling, **labels)
    model = noisy(AUTO[kind].from_config(config).double())
    model.save_pretrained(tmp_path / "theirs")
    parts, items = load_parts(tmp_path / "theirs"), items_of(kind, segments=False)
    assert not parts.unused
    where, wanted = real(kind, items), said_by(model, kind, items)
    assert (ours(parts, items) - wanted)[where].abs().max() < tolerance
    (tmp_path / "ours").mkdir()
    parts.heads["mlm"] = noisy(MaskedLMHead(24, 24, 97, "gelu", 1e-5, bias=False).double())
    save_parts(tmp_path / "ours", parts)
    back, report = AUTO[kind].from_pretrained(tmp_path / "ours", output_loading_info=True, dtype=torch.float64)
    assert not report["missing_keys"]
    assert type(back) is type(model)
    assert (said_by(back, kind, items) - wanted)[where].abs().max() < 1e-12
    assert back.config.id2label == model.config.id2label or kind not in ("classify", "tag")
    again = load_parts(tmp_path / "ours")
    assert torch.equal(ours(again, items)[where], ours(parts, items)[where])
    assert set(again.heads) >= {"mlm", kind}  # the head of the masks stands beside


@torch.no_grad()
def said_by(model: Any, kind: str, items: list[Item]) -> Tensor:
    lengths = torch.tensor([len(item.windows[0].ids) for item in items])
    mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
    ids = torch.zeros(mask.shape, dtype=torch.long)
    ids[mask] = torch.tensor([id for item in items for id in item.windows[0].ids])
    said = model.double().eval()(input_ids=ids, attention_mask=mask.long())
    return torch.stack([said.start_logits, said.end_logits], -1) if kind == "qa" else said.logits


def test_a_task_is_fitted_to_the_family() -> None:
    plain = TaskConfig("classify", ("a", "b"))
    assert fitted(plain, MODERN) == replace(plain, transform=True, pooling="cls")
    assert fitted(replace(plain, pooling="mean"), MODERN) == replace(plain, transform=True, pooling="mean")
    assert fitted(plain, EncoderConfig(70, 16, 2, 2)) == plain
    assert fitted(replace(plain, layers="mix"), MODERN).transform is False


def test_padding_never_leaks() -> None:
    torch.manual_seed(5)
    encoder = noisy(Encoder(MODERN).double()).eval()
    batch, _ = ragged(70)
    alone = Batch(batch.ids[1:2, :6], batch.lengths[1:2])
    assert torch.equal(batch.lengths[1], torch.tensor(6))
    assert (encoder(batch).last[1, :6] - encoder(alone).last[0]).abs().max() < 1e-12
    packed = encoder(batch.unpadded(8)).last
    assert (packed[1, :6] - encoder(alone).last[0]).abs().max() < 1e-12


def test_answers_on_a_cpu_are_the_same() -> None:
    torch.manual_seed(6)
    encoder = noisy(Encoder(MODERN)).float().eval()
    batch, inputs = ragged(70)
    where = inputs["attention_mask"].bool()
    assert (FastEncoder(encoder)(batch).last - encoder(batch).last)[where].abs().max() < 1e-4


def test_the_formula_of_the_cost() -> None:
    settings = {
        "order": "pre",
        "positions": "rotary",
        "segments": 0,
        "bias": False,
        "activation": "geglu",
        "inner": 100,
    }
    model, batch = made(embedding_norm=True, **settings)
    expected = flops_per_token(model.backbone.config, Work(LENGTH, 0.15))
    assert counted(model, batch) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "broken",
    [
        {"global_attn_every_n_layers": 3},
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        {"norm_bias": True},
        {"hidden_activation": "silu"},
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}},
    ],
    ids=str,
)
def test_what_is_not_computed_is_refused(broken: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"model_type": "modernbert"} | broken))
    with pytest.raises(SesameError, match="not supported"):
        load_parts(tmp_path)


def test_a_norm_can_move_to_the_embeddings_in_pre_only() -> None:
    with pytest.raises(SesameError, match="embedding_norm"):
        replace(MODERN, order="post")
    with pytest.raises(SesameError, match="embedding_norm"):
        replace(MODERN, share="all")


@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium", "base", "large"])
@pytest.mark.parametrize("name", ["sesame", "sesame-rtd"])
def test_the_house_recipe_is_written_as_modernbert(name: str, size: str) -> None:
    assert name in recipe_names()
    recipe = resolve(name, size=size)
    settings = {key: value for key, value in recipe.backbone.items() if key != "kind"}
    found = find_family(EncoderConfig(vocab=1000, **settings), {"mlm"})
    assert found is not None
    assert found[0] == "modernbert"
