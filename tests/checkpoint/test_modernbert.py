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
from sesame.backbones.flops import flops_per_token
from sesame.backbones.work import Work
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.hf import find_family, modernbert
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
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
    "windows": {"global_attn_every_n_layers": 3, "num_hidden_layers": 5, "local_attention": 6},
    "windows, the last one too": {"global_attn_every_n_layers": 2, "num_hidden_layers": 4, "local_attention": 4},
    "windows in odd places": {
        "num_hidden_layers": 4,
        "local_attention": 7,
        "local_rope_theta": 500.0,
        "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
    },
    "windows only": {"layer_types": ["sliding_attention"] * 3, "local_attention": 2, "global_rope_theta": 99.0},
    "each sees itself": {
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "local_attention": 1,
    },
    "windows wider than rows": {"global_attn_every_n_layers": 3, "local_attention": 128, "local_rope_theta": 77.0},
}
MODERN = EncoderConfig(
    vocab=70, width=16, depth=2, heads=2, inner=20, max_length=64, segments=0, positions="rotary", order="pre",
    embedding_norm=True, activation="geglu", bias=False, dropout=0.0, attention_dropout=0.0, eps=1e-5,
)  # fmt: skip


WINDOWS = replace(MODERN, depth=4, local_layers=(1, 3), window=2, local_base=300.0)


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


@pytest.mark.parametrize("config", [MODERN, replace(MODERN, bias=True), WINDOWS], ids=["plain", "biases", "windows"])
def test_our_model_there(config: EncoderConfig, tolerance: float, tmp_path: Path) -> None:
    torch.manual_seed(4)
    head = MaskedLMHead(16, 16, 70, "gelu", 1e-5, bias=config.bias)
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
        ("options", "cls"),
        ("options", "mean"),
    ],
)
def test_tasks_both_ways(case: str, pooling: str, tolerance: float, tmp_path: Path) -> None:
    kind, labels = CASES[case]
    torch.manual_seed(7)
    more = {"global_attn_every_n_layers": 2, "local_attention": 6}
    config = transformers.ModernBertConfig(**TINY | more, classifier_pooling=pooling, **labels)
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
    windows = [window for item in items for window in item.windows]
    lengths = torch.tensor([len(window.ids) for window in windows])
    mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
    ids = torch.zeros(mask.shape, dtype=torch.long)
    ids[mask] = torch.tensor([id for window in windows for id in window.ids])
    if kind == "choice":
        ids, mask = (x.view(len(items), -1, x.shape[-1]) for x in (ids, mask))
    said = model.double().eval()(input_ids=ids, attention_mask=mask.long())
    return torch.stack([said.start_logits, said.end_logits], -1) if kind == "qa" else said.logits


def test_a_task_is_fitted_to_the_family() -> None:
    plain = TaskConfig("classify", ("a", "b"))
    assert fitted(plain, MODERN) == replace(plain, transform=True, pooling="cls")
    assert fitted(replace(plain, pooling="mean"), MODERN) == replace(plain, transform=True, pooling="mean")
    assert fitted(plain, EncoderConfig(70, 16, 2, 2)) == plain
    assert fitted(replace(plain, layers="mix"), MODERN).transform is False


@pytest.mark.parametrize("config", [MODERN, WINDOWS], ids=["plain", "windows"])
def test_padding_never_leaks(config: EncoderConfig) -> None:
    torch.manual_seed(5)
    encoder = noisy(Encoder(config).double()).eval()
    batch, _ = ragged(70)
    alone = Batch(batch.ids[1:2, :6], batch.lengths[1:2])
    assert torch.equal(batch.lengths[1], torch.tensor(6))
    assert (encoder(batch).last[1, :6] - encoder(alone).last[0]).abs().max() < 1e-12
    packed = encoder(batch.unpadded(8)).last
    assert (packed[1, :6] - encoder(alone).last[0]).abs().max() < 1e-12
    assert encoder(batch).last.isfinite().all()


@pytest.mark.parametrize("config", [MODERN, WINDOWS, replace(WINDOWS, local_layers=(0, 1))], ids=str)
def test_answers_on_a_cpu_are_the_same(config: EncoderConfig) -> None:
    torch.manual_seed(6)
    encoder = noisy(Encoder(config)).float().eval()
    batch, inputs = ragged(70)
    where = inputs["attention_mask"].bool()
    fast = FastEncoder(encoder)
    assert (fast(batch).last - encoder(batch).last)[where].abs().max() < 1e-4
    few = torch.tensor([[0, 12, 5], [5, 0, 3], [0, 0, 0]])
    assert (fast(batch, few).last - encoder(batch, few).last).abs().max() < 1e-4


@pytest.mark.parametrize("local", [(1, 3), (0, 1), (0, 1, 2, 3)], ids=str)
def test_near_layers_see_their_window_alone(local: tuple[int, ...]) -> None:
    """By gradients: n layers with a window of w reach n * w places, and no farther, unless a layer sees everything."""
    torch.manual_seed(8)
    config = replace(WINDOWS, local_layers=local)
    encoder = noisy(Encoder(config).double()).eval()
    batch = Batch(torch.randint(8, 70, (1, 13)), torch.tensor([13]))
    reach = len(local) * config.window if len(local) == config.depth else 13
    gradients = []
    encoder.embeddings.register_forward_hook(lambda *given: gradients.append(given[2].requires_grad_()))
    encoder(batch).last[0, 0].square().sum().backward(inputs=gradients)
    felt = gradients[0].grad[0].abs().sum(-1) > 1e-12
    assert felt.tolist() == [place <= reach for place in range(13)]
    maps = encoder(batch, maps=True).maps
    far = (torch.arange(13)[:, None] - torch.arange(13)[None]).abs() > config.window
    assert [bool((seen[:, :, far] == 0).all()) for seen in maps] == [n in local for n in range(config.depth)]


@pytest.mark.parametrize("unpadded", [False, True])
def test_few_places_are_as_all(unpadded: bool) -> None:
    torch.manual_seed(9)
    batch, few = ragged(70)[0], torch.tensor([[0, 12, 5], [5, 0, 3], [0, 0, 0]])
    if unpadded:
        batch = batch.unpadded(8)
    for local in ((1, 3), (0, 1)):
        encoder = noisy(Encoder(replace(WINDOWS, local_layers=local)).double()).eval()
        whole = encoder(batch).last
        wanted = torch.stack([whole[row, at] for row, at in enumerate(few)])
        assert (encoder(batch, few).last - wanted).abs().max() < 1e-12


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: the kernel of rows without padding")
def test_the_kernel_has_windows_too() -> None:
    torch.manual_seed(10)
    lengths = torch.tensor([200, 77, 1])
    real = torch.arange(200)[None] < lengths[:, None]
    ids = torch.randint(8, 70, (3, 200)).masked_fill(~real, 0)
    batch = Batch(ids, lengths).to(torch.device("cuda"))
    config = replace(WINDOWS, width=64, window=16)
    encoder = Encoder(config).to("cuda", torch.bfloat16)
    answers, slopes = [], []
    for given in (batch, batch.unpadded(64)):
        encoder.zero_grad()
        last = encoder(given).last[real.cuda()].float()
        last.square().sum().backward()
        answers.append(last)
        slopes.append(encoder.blocks[1].attention.qkv.weight.grad.float())
    assert (answers[0] - answers[1]).abs().max() < 0.1
    assert (slopes[0] - slopes[1]).norm() < 0.05 * slopes[0].norm()


def test_windows_cost_less() -> None:
    wide = replace(WINDOWS, local_layers=())
    saved = flops_per_token(wide, Work(13, 0.15)) - flops_per_token(WINDOWS, Work(13, 0.15))
    pairs = sum(abs(i - j) > 2 for i in range(13) for j in range(13))
    last = (13 - round(0.15 * 13)) / 13  # of the last layer's work, which windows need everywhere
    per_place = 2 * 16 * 16 + 2 * 13 * 16 + 3 * 16 * 20
    assert saved == pytest.approx(6 * (2 * 2 * pairs * 16 / 13 - last * per_place))


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


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ({"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}}, "rope_type = 'linear'"),
        ({"rope_parameters": {"full_attention": {"type": "linear", "factor": 2.0}}}, "rope_type = 'linear'"),
        ({"rope_scaling": {"type": "dynamic"}}, "rope_scaling = {'type': 'dynamic'}"),
    ],
)
def test_the_refusal_of_scaled_angles_names_the_setting(broken: dict[str, Any], named: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"model_type": "modernbert"} | broken))
    with pytest.raises(SesameError) as error:
        load_parts(tmp_path)
    assert f"{named}: scaled rotary positions are not supported" in str(error.value)


@pytest.mark.parametrize("more", [{"sliding_window": 1}, {"sliding_window": 3, "local_attention": 2}])
def test_the_newer_name_of_the_window(more: dict[str, int], tmp_path: Path) -> None:
    """It counts one side, and goes before the whole breadth; it was passed over."""
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"model_type": "modernbert"} | more))
    config_there = transformers.AutoConfig.from_pretrained(tmp_path)
    config: Any = modernbert.read_config(json.loads((tmp_path / "config.json").read_text()), "")
    assert config.window == config_there.sliding_window == more["sliding_window"]


@pytest.mark.parametrize("broken", [{"rope_parameters": [1]}, {"global_attn_every_n_layers": 0}], ids=str)
def test_settings_of_another_kind_name_their_file(broken: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"model_type": "modernbert"} | broken))
    with pytest.raises(SesameError, match=r"config\.json: a setting is wrong"):
        load_parts(tmp_path)


@pytest.mark.parametrize("kinds", [["full_attention"], ["full_attention", "chunked_attention", "full_attention"]])
def test_each_layer_is_of_a_known_kind(kinds: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"model_type": "modernbert", "layer_types": kinds}))
    with pytest.raises(SesameError, match="layer_types must say"):
        load_parts(tmp_path)


@pytest.mark.parametrize("broken", [{"local_layers": (4,)}, {"local_layers": (-1,)}, {"window": -1}, {"causal": True}])
def test_windows_that_cannot_be(broken: dict[str, Any]) -> None:
    with pytest.raises(SesameError, match="local_layers"):
        replace(WINDOWS, **broken)


def test_a_norm_can_move_to_the_embeddings_in_pre_only() -> None:
    with pytest.raises(SesameError, match="embedding_norm"):
        replace(MODERN, order="post")
    with pytest.raises(SesameError, match="embedding_norm"):
        replace(MODERN, share="all")


@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium", "base", "large"])
@pytest.mark.parametrize("name", ["sesame", "sesame-nsp", "sesame-rtd"])
def test_the_house_recipe_is_written_as_modernbert(name: str, size: str) -> None:
    assert name in recipe_names()
    recipe = resolve(name, size=size)
    settings = {key: value for key, value in recipe.backbone.items() if key != "kind"}
    found = find_family(EncoderConfig(vocab=1000, **settings), {"mlm"})
    assert found is not None
    assert found[0] == "modernbert"
