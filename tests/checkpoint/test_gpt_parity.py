"""GPT-2 and the first GPT: our numbers are transformers', in both directions, at once and token by token."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import Speech, speaker
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.objectives import MaskedLMHead
from sesame.objectives.decoder_head import DecoderHead
from tests.checkpoint.test_bert_parity import noisy
from tests.checkpoint.test_task_parity import assert_equal

TINY: dict[str, Any] = {"vocab_size": 97, "n_positions": 40, "n_embd": 24, "n_layer": 2, "n_head": 4}
SHAPES: dict[str, dict[str, dict[str, Any]]] = {  # what is odd about a model, and who can have it
    "plain": {"gpt2": {}, "openai-gpt": {}},
    "one layer": {"gpt2": {"n_layer": 1}, "openai-gpt": {"n_layer": 1}},
    "three heads": {"gpt2": {"n_embd": 33, "n_head": 3, "n_inner": 17}, "openai-gpt": {"n_embd": 33, "n_head": 3}},
    "vocabulary of 64": {"gpt2": {"vocab_size": 64}, "openai-gpt": {"vocab_size": 64}},
    "relu": {"gpt2": {"activation_function": "relu"}, "openai-gpt": {"afn": "relu"}},
    "gelu": {"gpt2": {"activation_function": "gelu"}},
    "another eps": {"gpt2": {"layer_norm_epsilon": 1e-2}, "openai-gpt": {"layer_norm_epsilon": 1e-2}},
    "scores by layer": {"gpt2": {"scale_attn_by_inverse_layer_idx": True, "n_layer": 3}},
    "another order": {"gpt2": {"reorder_and_upcast_attn": True}},
    "untied": {"gpt2": {"tie_word_embeddings": False}, "openai-gpt": {"tie_word_embeddings": False}},
}
CASES = [(shape, family) for shape, families in SHAPES.items() for family in families]
AUTO = transformers.AutoModelForCausalLM


def made(family: str, shape: str = "plain", bare: bool = False, seed: int = 0) -> Any:
    config = transformers.AutoConfig.for_model(family, **{**TINY, **SHAPES[shape][family]})
    return noisy((transformers.AutoModel if bare else AUTO).from_config(config), seed)


def inputs(vocab: int, seed: int = 1, length: int = 11) -> tuple[Batch, Tensor, dict[str, Tensor]]:
    """Rows of several lengths; where they are real; the same for them."""
    luck = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([length, length // 2, 1])
    real = torch.arange(length) < lengths[:, None]
    ids = torch.randint(0, vocab, (3, length), generator=luck)
    return Batch(ids, lengths), real, {"input_ids": ids, "attention_mask": real.long()}


@torch.no_grad()
def ours(parts: Parts, batch: Batch) -> Tensor:
    hidden = parts.backbone.eval()(batch).last
    name = next((name for name in ("lm", "mlm") if name in parts.heads), None)
    if name is None:
        return hidden
    found: Tensor = parts.heads[name](hidden, parts.backbone.token_table())
    return found[..., : parts.backbone.vocab]


@torch.no_grad()
def theirs(model: Any, given: dict[str, Tensor]) -> Tensor:
    found: Tensor = model.eval()(**given)[0]
    return found


def token_by_token(parts: Parts, batch: Batch, prompt: int = 1) -> Tensor:
    """Logits behind the prompt and each token after it. Shape: (B, L - prompt + 1, V)."""
    parts.backbone.eval()
    voice = speaker(parts)
    heard = voice.begin(replace(batch, ids=batch.ids[:, :prompt], lengths=torch.full((batch.size,), prompt), full=True))
    found = [heard.logits]
    for ids in batch.ids[:, prompt:].unbind(1):
        heard = voice.next(ids, heard.memory)
        found.append(heard.logits)
    return torch.stack(found, 1)


def saved(parts: Parts, folder: Path) -> Path:
    folder.mkdir()
    save_parts(folder, parts)
    return folder


@pytest.mark.parametrize(("shape", "family"), CASES)
def test_there_and_back(shape: str, family: str, tmp_path: Path) -> None:
    model = made(family, shape)
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    assert parts.unused == []
    assert set(parts.heads) == {"lm"}
    batch, real, given = inputs(model.config.vocab_size)
    wanted = theirs(model, given)
    assert_equal(ours(parts, batch)[real], wanted[real])
    assert_equal(token_by_token(parts, batch)[real], wanted[real])
    assert_equal(token_by_token(parts, batch, 4)[0], wanted[0, 3:])

    folder = saved(parts, tmp_path / "ours")
    assert json.loads((folder / "config.json").read_text())["model_type"] == family
    assert_equal(theirs(AUTO.from_pretrained(folder), given)[real], wanted[real])
    again = load_parts(folder).state()
    assert again.keys() == parts.state().keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in parts.state().items())


def test_scores_of_32_bits_are_the_same_scores(tmp_path: Path) -> None:
    """`reorder_and_upcast_attn` is how to compute them in 16 bits, where attention is theirs alone ("eager")."""
    made("gpt2").float().save_pretrained(tmp_path)
    model = AUTO.from_pretrained(tmp_path, reorder_and_upcast_attn=True, attn_implementation="eager")
    batch, real, given = inputs(97)
    torch.testing.assert_close(ours(load_parts(tmp_path), batch)[real], theirs(model, given)[real], atol=1e-5, rtol=0)


def test_scores_by_layer_in_files_of_16_bits(tmp_path: Path) -> None:
    """A third of a number of 16 bits has more of them; it is not rounded once more."""
    made("gpt2", "scores by layer").half().save_pretrained(tmp_path)
    model = AUTO.from_pretrained(tmp_path, dtype=torch.float32)
    batch, real, given = inputs(97)
    torch.testing.assert_close(ours(load_parts(tmp_path), batch)[real], theirs(model, given)[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_bare(family: str, tmp_path: Path) -> None:
    model = made(family, bare=True)
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    assert parts.unused == []
    assert (parts.heads, parts.speech) == ({}, None)
    batch, real, given = inputs(97)
    assert_equal(ours(parts, batch)[real], theirs(model, given)[real])
    back = transformers.AutoModel.from_pretrained(saved(parts, tmp_path / "ours"))
    assert type(back) is type(model)
    assert_equal(theirs(back, given)[real], theirs(model, given)[real])


@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_prompts_of_several_lengths_go_on(family: str, tmp_path: Path) -> None:
    """Padded at their end here, on the left there."""
    model = made(family)
    model.save_pretrained(tmp_path)
    parts = load_parts(tmp_path)
    batch, _, _ = inputs(97)
    voice = speaker(parts)
    parts.backbone.eval()
    heard = voice.begin(batch)
    following = torch.tensor([5, 6, 7])
    after = voice.next(following, heard.memory)
    for row, length in enumerate(batch.lengths.tolist()):
        ids = torch.cat([batch.ids[row, :length], following[row : row + 1]])[None]
        wanted = theirs(model, {"input_ids": ids})[0]
        assert_equal(heard.logits[row], wanted[-2])
        assert_equal(after.logits[row], wanted[-1])


@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_in_32_bits(family: str, tmp_path: Path) -> None:
    model = made(family, seed=2).float()
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    batch, real, given = inputs(97)
    wanted = theirs(model, given)[real]
    assert (ours(parts, batch)[real] - wanted).abs().max() < 1e-4
    assert (token_by_token(parts, batch)[real] - wanted).abs().max() < 1e-4
    back = AUTO.from_pretrained(saved(parts, tmp_path / "ours"))
    assert (theirs(back, given)[real] - wanted).abs().max() < 1e-4


@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_old_files(family: str, tmp_path: Path) -> None:
    """A .bin of 2019: no prefix, the triangles of the masks, no word about the class of the model."""
    model = made(family)
    model.save_pretrained(tmp_path)
    state = {name.removeprefix("transformer."): tensor.clone() for name, tensor in model.state_dict().items()}
    state |= {f"h.{n}.attn.bias": torch.ones(1, 1, 40, 40).tril() for n in range(2)}
    state["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    for name in ("model.safetensors", "generation_config.json"):
        (tmp_path / name).unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    found = json.loads((tmp_path / "config.json").read_text())
    del found["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(found))
    parts = load_parts(tmp_path)
    assert parts.unused == []
    batch, real, given = inputs(97)
    assert_equal(ours(parts, batch)[real], theirs(model, given)[real])


@pytest.mark.parametrize(
    ("family", "settings", "said"),
    [
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights = False is not supported"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention = True is not supported"),
        ("gpt2", {"activation_function": "silu"}, "the activation 'silu' is not known"),
        ("openai-gpt", {"afn": "silu"}, "afn = 'silu' is not known"),
        ("gpt2", {"tie_word_embeddings": False}, "there is no lm_head.weight"),
    ],
)
def test_refused(family: str, settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    made(family).save_pretrained(tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**found, **settings}))
    with pytest.raises(SesameError, match=said):
        load_parts(tmp_path)


def test_a_dropout_that_has_no_place_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made("gpt2").save_pretrained(tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**found, "embd_pdrop": 0.0, "resid_pdrop": 0.2}))
    assert load_parts(tmp_path).backbone.config.dropout == 0.2
    assert "embd_pdrop is not resid_pdrop" in capsys.readouterr().err


def test_speech(tmp_path: Path) -> None:
    model = made("gpt2")
    model.generation_config = transformers.GenerationConfig(eos_token_id=7, bos_token_id=7, top_k=11, do_sample=True)
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    assert parts.speech is not None
    assert (parts.speech.start, parts.speech.end, parts.speech.pad) == ((), (7,), None)
    assert (parts.speech.more["top_k"], parts.speech.more["bos_token_id"]) == (11, 7)
    folder = saved(parts, tmp_path / "ours")
    assert load_parts(folder).speech == parts.speech
    config = AUTO.from_pretrained(folder).generation_config
    assert (config.eos_token_id, config.bos_token_id, config.top_k, config.do_sample) == (7, 7, 11, True)


def left_to_right(head: Any, **more: Any) -> Parts:
    torch.manual_seed(5)
    config = EncoderConfig(70, 24, 2, 4, max_length=20, segments=0, causal=True, **more)
    name = "lm" if isinstance(head, DecoderHead) else "mlm"
    parts = Parts(Encoder(config), {name: head}, speech=Speech((), (3,), 0))
    for module in (parts.backbone, *parts.heads.values()):
        noisy(module)
    return parts


FIRST = {"bare_embeddings": True, "activation": "gelu_tanh", "eps": 1e-5}


@pytest.mark.parametrize(
    ("wanted", "head", "settings"),
    [
        ("gpt2", {}, {"order": "pre", "inner": 50}),
        ("gpt2", {"tied": False}, {"order": "pre", "dropout": 0.3}),
        ("openai-gpt", {}, FIRST),
        ("sesame", {}, {**FIRST, "activation": "gelu"}),  # whose gelu is the one by tanh
        ("sesame", {}, {**FIRST, "inner": 50}),  # always four times as wide
        ("sesame", {"bias": "trained"}, {"order": "pre"}),
        ("sesame", {}, {"order": "pre", "positions": "rotary"}),
        ("sesame", {}, {}),  # a norm behind the embeddings
        ("sesame", {"scale": 0.5, "tied": False}, {"order": "pre"}),
    ],
)
def test_new_models(wanted: str, head: dict[str, Any], settings: dict[str, Any], tmp_path: Path) -> None:
    """Made here: written as a family where one computes the same, else in our own format."""
    parts = left_to_right(DecoderHead(24, 70, **head), **settings)
    folder = saved(parts, tmp_path / "ours")
    assert json.loads((folder / "config.json").read_text())["model_type"] == wanted
    batch, real, given = inputs(70)
    back = load_parts(folder)
    assert (set(back.heads), back.speech) == ({"lm"}, parts.speech)
    assert torch.equal(ours(back, batch)[real], ours(parts, batch)[real])
    assert_equal(token_by_token(back, batch)[real], ours(parts, batch)[real])
    if wanted != "sesame":
        assert_equal(theirs(AUTO.from_pretrained(folder), given)[real], ours(parts, batch)[real])


def test_the_head_of_masks_speaks_from_left_to_right(tmp_path: Path) -> None:
    """What objectives.clm leaves behind."""
    parts = left_to_right(MaskedLMHead(24, 24, 70, "gelu", 1e-12), order="pre")
    back = load_parts(saved(parts, tmp_path / "ours"))
    assert back.speech == parts.speech
    batch, real, _ = inputs(70)
    assert_equal(token_by_token(back, batch)[real], ours(parts, batch)[real])
    both_ways = Parts(Encoder(EncoderConfig(70, 24, 1, 4)), dict(back.heads))
    with pytest.raises(SesameError, match="does not read from left to right"):
        speaker(both_ways)


def test_folders_of_before_still_open(tmp_path: Path) -> None:
    """They name no backbone: it was an encoder."""
    parts = left_to_right(MaskedLMHead(24, 24, 70, "gelu", 1e-12), order="pre")
    folder = saved(parts, tmp_path / "ours")
    found = json.loads((folder / "config.json").read_text())
    assert found.pop("backbone") == "encoder"
    del found["encoder"]["bare_embeddings"]
    (folder / "config.json").write_text(json.dumps({**found, "architectures": ["SesameEncoder"]}))
    batch, real, _ = inputs(70)
    assert torch.equal(ours(load_parts(folder), batch)[real], ours(parts, batch)[real])
    (folder / "config.json").write_text(json.dumps({**found, "backbone": "encodr"}))
    with pytest.raises(SesameError, match="unknown backbone 'encodr'; did you mean 'encoder'"):
        load_parts(folder)
