"""T5, BART, mBART, Marian and PEGASUS: our numbers are transformers', in both directions, at once and token by token."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.models.t5.modeling_t5 import T5LayerNorm

from sesame.backbones import EncoderDecoder, EncoderDecoderConfig, EncoderHalf
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import Speech, speaker
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.objectives.decoder_head import DecoderHead
from tests.checkpoint.test_bert_parity import noisy
from tests.checkpoint.test_task_parity import assert_equal

T5 = {"vocab_size": 97, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
T5 |= {"decoder_start_token_id": 0}
HALVES = {"vocab_size": 97, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 40}
HALVES |= {
    f"{half}_{what}": n for half in ("encoder", "decoder") for what, n in (("attention_heads", 4), ("ffn_dim", 40))
}
MARIAN = {**HALVES, "pad_token_id": 96, "decoder_start_token_id": 96, "eos_token_id": 0, "forced_eos_token_id": 0}
FAMILIES: dict[str, dict[str, Any]] = {"t5": T5, "bart": HALVES, "mbart": HALVES, "marian": MARIAN, "pegasus": HALVES}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
ODD = {"encoder_layers": 1, "decoder_layers": 3, "d_model": 33, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17}
ODD |= {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
FAIRSEQ = ("bart", "mbart", "marian", "pegasus")
SHAPES: dict[str, dict[str, dict[str, Any]]] = {  # what is odd about a model, and who can have it
    "plain": {name: {} for name in FAMILIES},
    "halves of other depths": {
        "t5": {"num_layers": 1, "num_decoder_layers": 3, "num_heads": 5, "d_kv": 4, "d_ff": 17},
        **dict.fromkeys(FAIRSEQ, ODD),
    },
    "halves unlike each other": {
        name: {"decoder_attention_heads": 2, "decoder_ffn_dim": 28, "encoder_attention_heads": 6} for name in FAIRSEQ
    },
    "vocabulary of 64": {name: {"vocab_size": 64} for name in ("t5", "bart", "mbart")},
    "one layer": {"t5": {"num_layers": 1}, **{name: {"encoder_layers": 1, "decoder_layers": 1} for name in FAIRSEQ}},
    "large embeddings": {name: {"scale_embedding": True} for name in ("mbart", "marian", "pegasus")},
    "swish": {"marian": {"activation_function": "swish"}},
    "relu": {"mbart": {"activation_function": "relu"}},
    "gelu by tanh": {"bart": {"activation_function": "gelu_new"}},
    "gated, without the factor": {"t5": GATED},
    "gated, untied": {"t5": GATED},
    **{
        kind: {"t5": {"feed_forward_proj": kind}}
        for kind in ("gelu", "silu", "gated-relu", "gated-silu", "gated-swish")
    },
    "other buckets": {"t5": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11}},
    "another eps": {"t5": {"layer_norm_epsilon": 1e-2}},
    "untied": {name: {"tie_word_embeddings": False} for name in FAIRSEQ},
}
CASES = [(shape, family) for shape, families in SHAPES.items() for family in families]
AUTO = transformers.AutoModelForSeq2SeqLM


@pytest.fixture(autouse=True)
def exact_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their T5 norms in 32 bits whatever the precision, which alone makes 1e-7; here they keep all 64."""

    def norm(self: Any, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    monkeypatch.setattr(T5LayerNorm, "forward", norm)


def sinusoids_of_32_bits(model: Any) -> Any:
    for module in model.modules():
        if hasattr(module, "create_weight"):
            module.weight.data = module.create_weight().float().to(module.weight.dtype)
    return model


def made(family: str, shape: str, bare: bool = False, seed: int = 0) -> Any:
    config = transformers.AutoConfig.for_model(family, **{**FAMILIES[family], **SHAPES[shape][family]})
    model = (transformers.AutoModel if bare else AUTO).from_config(config)
    if shape.endswith("untied") and family == "t5":
        model.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
    noisy(model, seed)
    if shape.endswith("untied") and family != "t5":  # halves with one table, as all published models have them
        inner = model.model
        inner.encoder.embed_tokens.weight.data = inner.decoder.embed_tokens.weight.data.clone()
    for name, buffer in model.named_buffers():
        if name == "final_logits_bias":
            buffer.copy_(torch.randn(buffer.shape, generator=torch.Generator().manual_seed(seed), dtype=buffer.dtype))
    return sinusoids_of_32_bits(model)


def inputs(vocab: int, seed: int = 1, source: int = 13, answer: int = 9) -> tuple[Batch, Tensor, dict[str, Tensor]]:
    """Sources and what the decoder reads, both of several lengths; where the latter is real; the same for them."""
    luck = torch.Generator().manual_seed(seed)
    lengths, ends = torch.tensor([source, source // 2, 1]), torch.tensor([answer // 2, answer, 1])
    real = torch.arange(source) < lengths[:, None]
    read = torch.arange(answer) < ends[:, None]
    ids = torch.randint(3, vocab, (3, source), generator=luck).masked_fill(~real, 1)
    outputs = torch.randint(3, vocab, (3, answer), generator=luck).masked_fill(~read, 1)
    given = {
        "input_ids": ids,
        "attention_mask": real.long(),
        "decoder_input_ids": outputs,
        "decoder_attention_mask": read.long(),
    }
    return Batch(ids, lengths, outputs=outputs), read, given


@torch.no_grad()
def ours(parts: Parts, batch: Batch) -> Tensor:
    """Logits, or states if there is no output layer."""
    hidden = parts.backbone.eval()(batch).last
    if "seq2seq" not in parts.heads:
        return hidden
    found: Tensor = parts.heads["seq2seq"](hidden, parts.backbone.token_table())
    return found[..., : parts.backbone.vocab]


@torch.no_grad()
def theirs(model: Any, given: dict[str, Tensor]) -> Tensor:
    found: Tensor = model.eval()(**given)[0]
    return found


def token_by_token(parts: Parts, batch: Batch) -> Tensor:
    assert batch.outputs is not None
    parts.backbone.eval()
    voice = speaker(parts)
    heard = voice.begin(replace(batch, outputs=batch.outputs[:, :1]))
    found = [heard.logits]
    for ids in batch.outputs[:, 1:].unbind(1):
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
    assert set(parts.heads) == {"seq2seq"}
    batch, read, given = inputs(model.config.vocab_size)
    wanted = theirs(model, given)[read]
    assert_equal(ours(parts, batch)[read], wanted)
    assert_equal(token_by_token(parts, batch)[read], wanted)

    folder = saved(parts, tmp_path / "ours")
    assert json.loads((folder / "config.json").read_text())["model_type"] == family
    back = sinusoids_of_32_bits(AUTO.from_pretrained(folder))
    assert_equal(theirs(back, given)[read], wanted)
    again = load_parts(folder).state()
    assert again.keys() == parts.state().keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in parts.state().items())


@pytest.mark.parametrize("family", list(FAMILIES))
def test_bare(family: str, tmp_path: Path) -> None:
    model = made(family, "plain", bare=True)
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    assert parts.unused == []
    assert parts.heads == {}
    assert parts.speech is None
    batch, read, given = inputs(97)
    wanted = theirs(model, given)[read]
    assert_equal(ours(parts, batch)[read], wanted)
    folder = saved(parts, tmp_path / "ours")
    back = sinusoids_of_32_bits(transformers.AutoModel.from_pretrained(folder))
    assert type(back) is type(model)
    assert_equal(theirs(back, given)[read], wanted)
    with pytest.raises(SesameError, match="no output layer for tokens"):
        speaker(parts)


def test_the_encoder_of_t5_alone(tmp_path: Path) -> None:
    """Our whole opens as T5EncoderModel too, and so saved again it opens here as the half that it is."""
    made("t5", "plain").save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    assert isinstance(parts.backbone, EncoderDecoder)
    batch, _, given = inputs(97)
    back = transformers.T5EncoderModel.from_pretrained(saved(parts, tmp_path / "ours"))
    with torch.no_grad():
        wanted = back(input_ids=given["input_ids"], attention_mask=given["attention_mask"])[0]
        real = given["attention_mask"].bool()
        assert_equal(parts.backbone.eval().read(batch)[real], wanted[real])
    back.save_pretrained(tmp_path / "half")
    half = load_parts(tmp_path / "half").backbone
    assert isinstance(half, EncoderHalf)
    with torch.no_grad():
        assert_equal(half.eval()(batch).last[real], wanted[real])


@pytest.mark.parametrize("family", list(FAMILIES))
def test_in_32_bits(family: str, tmp_path: Path) -> None:
    model = made(family, "plain", seed=2).float()
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    batch, read, given = inputs(97)
    wanted = theirs(model, given)[read]
    scale = wanted.abs().max()
    assert (ours(parts, batch)[read] - wanted).abs().max() < 1e-4 * scale
    assert (token_by_token(parts, batch)[read] - wanted).abs().max() < 1e-4 * scale
    back = AUTO.from_pretrained(saved(parts, tmp_path / "ours"))
    assert back.dtype == torch.float32
    assert (theirs(back, given)[read] - wanted).abs().max() < 1e-4 * scale


@pytest.mark.parametrize("family", list(FAMILIES))
def test_old_files(family: str, tmp_path: Path) -> None:
    """A .bin with every copy of the table, positions that are computed, versions, and a config of another year."""
    model = made(family, "plain")
    model.save_pretrained(tmp_path)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if family == "t5":
        state["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.randn(32, 4)
    elif family == "bart":
        state["model.encoder.version"] = torch.tensor([3.0])
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "generation_config.json").unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    parts = load_parts(tmp_path)
    assert parts.unused == []
    batch, read, given = inputs(97)
    assert_equal(ours(parts, batch)[read], theirs(model, given)[read])


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_misses_nothing(family: str, bare: bool, tmp_path: Path) -> None:
    """Or it tells people that something was newly initialized and wants training."""
    made(family, "plain", bare).save_pretrained(tmp_path / "theirs")
    folder = saved(load_parts(tmp_path / "theirs"), tmp_path / "ours")
    auto = transformers.AutoModel if bare else AUTO
    back, report = auto.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    if family in ("marian", "pegasus"):
        for half in (back.get_encoder(), back.get_decoder()):
            at = half.embed_positions
            assert float((at.weight - at.create_weight()).detach().abs().max()) < 1e-7


def test_one_copy_of_the_table_is_enough(tmp_path: Path) -> None:
    """Which of the tied names survives in a file differs between versions."""
    tables = ("embed_tokens.weight", "shared.weight", "lm_head.weight")
    for family, left in {"t5": "decoder.embed_tokens.weight", "bart": "lm_head.weight"}.items():
        model = made(family, "plain")
        folder = tmp_path / family
        model.save_pretrained(folder)
        (folder / "model.safetensors").unlink()
        state = {name: t for name, t in model.state_dict().items() if name == left or not name.endswith(tables)}
        torch.save(state, folder / "pytorch_model.bin")
        batch, read, given = inputs(97)
        assert_equal(ours(load_parts(folder), batch)[read], theirs(model, given)[read])


@pytest.mark.parametrize("bits", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", ["marian", "pegasus"])
def test_positions_of_files_of_16_bits_are_exact(family: str, bits: torch.dtype, tmp_path: Path) -> None:
    """As their formula has them; there a table is read that the file may hold rounded."""
    made(family, "plain").save_pretrained(tmp_path / "whole")
    parts = load_parts(tmp_path / "whole")
    folder = saved(parts, tmp_path / "half")
    tensors = {name: tensor.to(bits) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    batch, read, given = inputs(97)
    rounded = AUTO.from_pretrained(folder, dtype=torch.float32)
    found, off = ours(load_parts(folder), batch)[read], theirs(rounded, given)[read]
    exact = theirs(sinusoids_of_32_bits(rounded), given)[read]
    assert float((found - exact).abs().max()) < 3e-6
    assert float((off - exact).abs().max()) > 8e-6, "it makes no difference, so nothing is tested"


# ---- what is told, and what is refused -----------------------------------------------------------------------------


def change(folder: Path, **settings: Any) -> Path:
    found = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**found, **settings}))
    return folder


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("t5", {"feed_forward_proj": "gated-mish"}, "feed_forward_proj = 'gated-mish' is not known"),
    ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder = False is not supported"),
    ("bart", {"decoder_attention_heads": 7}, "does not divide by the decoder's 7 heads"),
    ("bart", {"normalize_before": True}, "normalize_before = True is not supported"),
    ("mbart", {"add_final_layer_norm": False}, "add_final_layer_norm = False is not supported"),
    ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings = False"),
    ("marian", {"decoder_vocab_size": 55}, "decoder_vocab_size = 55 is not supported"),
    ("pegasus", {"normalize_before": False}, "normalize_before = False is not supported"),
    ("bart", {"activation_function": "mish"}, "the activation 'mish' is not known"),
    ("bart", {"tie_word_embeddings": False}, "there is no lm_head.weight"),
]


@pytest.mark.parametrize(("family", "settings", "said"), REFUSED)
def test_refused(family: str, settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    made(family, "plain").save_pretrained(tmp_path)
    with pytest.raises(SesameError, match=said):
        load_parts(change(tmp_path, **settings))


def test_halves_with_tables_of_their_own_are_refused(tmp_path: Path) -> None:
    model = made("bart", "untied")
    model.model.encoder.embed_tokens.weight.data += 1
    model.save_pretrained(tmp_path)
    with pytest.raises(SesameError, match="halves read different tables"):
        load_parts(tmp_path)


def test_speech(tmp_path: Path) -> None:
    """generation_config.json wins; what it says of the search is kept; both files are written."""
    made("marian", "plain").save_pretrained(tmp_path / "theirs")
    told = {"bad_words_ids": [[96]], "num_beams": 6, "eos_token_id": [0, 5], "decoder_start_token_id": 96}
    (tmp_path / "theirs" / "generation_config.json").write_text(json.dumps({**told, "forced_bos_token_id": 7}))
    parts = load_parts(tmp_path / "theirs")
    wanted = Speech((96,), (0, 5), 96, first=7, last=None, banned=((96,),), more={"num_beams": 6})
    assert parts.speech == wanted
    folder = saved(parts, tmp_path / "ours")
    assert load_parts(folder).speech == wanted
    config = AUTO.from_pretrained(folder).generation_config
    assert (config.num_beams, config.bad_words_ids, config.forced_bos_token_id) == (6, [[96]], 7)
    assert (config.eos_token_id, config.pad_token_id, config.decoder_start_token_id) == ([0, 5], 96, 96)
    assert config.forced_eos_token_id is None


def test_speech_of_older_folders(tmp_path: Path) -> None:
    made("bart", "plain").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    change(tmp_path, num_beams=4, forced_eos_token_id=2, no_repeat_ngram_size=3)
    speech = load_parts(tmp_path).speech
    assert speech is not None
    assert (speech.start, speech.end, speech.pad, speech.last) == ((2,), (2,), 1, 2)
    assert speech.more["num_beams"] == 4
    found = json.loads((tmp_path / "config.json").read_text())
    for key in ("decoder_start_token_id", "eos_token_id", "pad_token_id"):
        del found[key]
    (tmp_path / "config.json").write_text(json.dumps(found))
    assert load_parts(tmp_path).speech == speech  # what the family means when nothing is said
    made("mbart", "plain").save_pretrained(tmp_path / "m")
    assert load_parts(tmp_path / "m").speech.start == (0,)  # type: ignore[union-attr]
    change(tmp_path, decoder_start_token_id=[5, 6])
    with pytest.raises(SesameError, match="decoder_start_token_id names 2 tokens"):
        load_parts(tmp_path)
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(SesameError, match="holds no table of settings"):
        load_parts(tmp_path)


def greedy(parts: Parts, batch: Batch, most: int) -> list[list[int]]:
    """The likeliest token again and again, by what the folder says of beginning and end."""
    speech = parts.speech
    assert speech is not None
    parts.backbone.eval()
    voice, rows = speaker(parts), []
    for row in range(batch.size):
        ids = batch.ids[row : row + 1, : int(batch.lengths[row])]
        heard = voice.begin(Batch(ids, batch.lengths[row : row + 1], outputs=torch.tensor([speech.start])))
        said = [*speech.start]
        for step in range(most):
            logits = heard.logits[0].clone()
            logits[[word for (word,) in speech.banned]] = -torch.inf
            forced = speech.first if step == 0 else speech.last if step == most - 1 else None
            said.append(int(logits.argmax()) if forced is None else forced)
            if said[-1] in speech.end:
                break
            heard = voice.next(torch.tensor(said[-1:]), heard.memory)
        rows.append(said)
    return rows


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_answers_begin_and_end_as_there(family: str, seed: int, tmp_path: Path) -> None:
    made(family, "plain", seed=seed).save_pretrained(tmp_path / "theirs")
    said = {"decoder_start_token_id": 5, "pad_token_id": 1, "eos_token_id": [7 * n + 1 for n in range(3, 13)]}
    said |= {"forced_eos_token_id": 8, "bad_words_ids": [[word] for word in range(9, 30)]}
    said |= {"forced_bos_token_id": 44} if family == "mbart" else {}
    (tmp_path / "theirs" / "generation_config.json").write_text(json.dumps(said))
    parts = load_parts(tmp_path / "theirs")
    batch, _, given = inputs(97, seed=seed)
    found = greedy(parts, batch, 8)
    model = sinusoids_of_32_bits(AUTO.from_pretrained(saved(parts, tmp_path / "ours")))
    asked = {name: given[name] for name in ("input_ids", "attention_mask")}
    wanted = model.generate(**asked, max_length=9, num_beams=1, do_sample=False)
    for row, ids in zip(found, wanted.tolist(), strict=True):
        assert row == ids[: len(row)]
        assert set(ids[len(row) :]) <= {1}


OWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no norm behind learned positions": ({"positions": "learned"}, {"bias": "trained"}),
    "norms first without means": ({"order": "pre", "norm": "rms"}, {"tied": False, "bias": "fixed"}),
    "gelu with a gate": ({"activation": "geglu"}, {"scale": 0.5}),
    "an output that is scaled": ({}, {"scale": 24**-0.5}),
}


@pytest.mark.parametrize("case", list(OWN))
def test_our_own_format(case: str, tmp_path: Path) -> None:
    settings, head = OWN[case]
    torch.manual_seed(5)
    config = EncoderDecoderConfig(70, 24, 2, 4, decoder_depth=1, max_length=20, **settings)
    parts = Parts(EncoderDecoder(config), {"seq2seq": DecoderHead(24, 70, **head)}, speech=Speech((2, 9), (3,), 0))
    parts.heads["seq2seq"].bias.data.normal_()  # type: ignore[union-attr]
    back = load_parts(saved(parts, tmp_path / "ours"))
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == "sesame"
    assert (back.backbone.config, back.speech) == (config, parts.speech)
    batch, read, _ = inputs(70)
    if head.get("bias", "none") == "none":
        parts.heads["seq2seq"].bias.data.zero_()  # type: ignore[union-attr]
    assert torch.equal(ours(back, batch)[read], ours(parts, batch)[read])
    assert torch.allclose(token_by_token(back, batch)[read], ours(parts, batch)[read], atol=1e-4)


@pytest.mark.parametrize(
    ("wanted", "settings", "head"),
    [
        ("marian", {"activation": "silu"}, {"bias": "trained"}),
        ("marian", {"grow": False, "dropout": 0.3, "attention_dropout": 0.2, "inner_dropout": 0.25}, {"tied": False}),
        ("pegasus", {"order": "pre"}, {}),
        ("pegasus", {"order": "pre", "grow": False, "dropout": 0.3, "decoder_depth": 1}, {"tied": False}),
        ("bart", {"positions": "learned", "embedding_norm": True, "activation": "gelu"}, {}),
        ("mbart", {"positions": "learned", "embedding_norm": True, "order": "pre"}, {"bias": "fixed"}),
        ("t5", {"dropout": 0.3, "attention_dropout": 0.2}, {"scale": 24**-0.5}),
        ("t5", {"head_size": 5, "activation": "geglu_tanh"}, {}),
        ("t5", {"decoder_depth": 1}, {"tied": False}),
    ],
)
def test_new_models_are_written_as_a_family(
    wanted: str, settings: dict[str, Any], head: dict[str, Any], tmp_path: Path
) -> None:
    """Made here, with dropouts of their own: transformers says the same tokens, and nothing of the settings is lost."""
    if wanted == "t5":
        t5 = {"positions": "relative", "order": "pre", "norm": "rms", "bias": False, "grow": False, "scaled": False}
        settings = {**t5, "activation": "relu", "eps": 1e-6, **settings}
    config = EncoderDecoderConfig(70, 24, 2, 4, max_length=30, **settings)
    parts = Parts(EncoderDecoder(config), {"seq2seq": DecoderHead(24, 70, **head)}, speech=Speech((2,), (3,), 1))
    for module in (parts.backbone, *parts.heads.values()):
        noisy(module)  # type: ignore[arg-type]
    folder = saved(parts, tmp_path / "ours")
    assert json.loads((folder / "config.json").read_text())["model_type"] == wanted
    batch, read, given = inputs(70)
    model = sinusoids_of_32_bits(AUTO.from_pretrained(folder))
    assert_equal(theirs(model, given)[read], ours(parts, batch)[read])
    assert (model.generation_config.decoder_start_token_id, model.generation_config.eos_token_id) == (2, 3)
    back = load_parts(folder)
    assert_equal(ours(back, batch)[read], ours(parts, batch)[read])
    for name in ("dropout", "attention_dropout", "inner_dropout", "max_length"):
        assert getattr(back.backbone.config, name) == getattr(config, name)
