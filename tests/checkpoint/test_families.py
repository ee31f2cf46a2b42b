"""Every family of Hugging Face: our numbers are transformers', in both directions, with all heads that have a place here."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors
from torch import Tensor

from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.hf import find_family
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts, wanted_family
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.objectives import MaskedLMHead, PairHead, ReplacedHead
from sesame.tasks import Item, TaskConfig, build_task
from sesame.text import Tokenizer
from tests.checkpoint.test_bert_parity import noisy
from tests.checkpoint.test_task_parity import AUTO, CASES, assert_equal, items_of, logits, real, together

TINY = {"vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
NARROW = {**TINY, "embedding_size": 10}
ONE = {**TINY, "type_vocab_size": 1, "max_position_embeddings": 60}
SMALL = {"vocab_size": 97, "dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 40}
FAMILIES: dict[str, dict[str, Any]] = {  # the settings of a tiny model of each
    "roberta": ONE,
    "xlm-roberta": ONE,
    "camembert": ONE,
    "albert": NARROW,
    "electra": NARROW,
    "distilbert": SMALL,
    "ernie": TINY,
}
SHAPES: dict[str, dict[str, dict[str, Any]]] = {  # what is odd about a model, and who can have it
    "plain": {name: {} for name in FAMILIES},
    "one layer": {name: {"num_hidden_layers": 1} for name in FAMILIES},
    "three heads": {
        name: {"hidden_size": 33, "num_attention_heads": 3, "hidden_dim" if name == "distilbert" else "intermediate_size": 17}
        for name in FAMILIES
    },
    "vocabulary of 64": {name: {"vocab_size": 64} for name in FAMILIES},
    "many segments": {name: {"type_vocab_size": 5} for name in ("albert", "electra", "ernie")},
    "another eps": {name: {"layer_norm_eps": 1e-3} for name in FAMILIES if name != "distilbert"},
    "relu": {"albert": {"hidden_act": "relu"}, "distilbert": {"activation": "relu"}, "ernie": {"hidden_act": "relu"}},
    "gelu in Python": {"albert": {"hidden_act": "gelu_python"}},
    "gelu by tanh": {"albert": {"hidden_act": "gelu_new"}, "distilbert": {"activation": "gelu_new"}},
    "padding first": {name: {"pad_token_id": 0} for name in ("roberta", "xlm-roberta", "camembert")},
    "padding late": {name: {"pad_token_id": 7} for name in ("roberta", "xlm-roberta")},
    "wide": {"electra": {"embedding_size": 24}, "albert": {"embedding_size": 24}},
    "wider": {"electra": {"embedding_size": 30}, "albert": {"embedding_size": 30}},
    "sinusoids": {"distilbert": {"sinusoidal_pos_embds": True}},
    "task types": {"ernie": {"use_task_id": True, "type_vocab_size": 4}},
    "untied": {name: {"tie_word_embeddings": False} for name in FAMILIES},
}  # fmt: skip
HEADS: dict[str, list[Any]] = {
    "roberta": [transformers.RobertaForMaskedLM, transformers.RobertaModel],
    "xlm-roberta": [transformers.XLMRobertaForMaskedLM, transformers.XLMRobertaModel],
    "camembert": [transformers.CamembertForMaskedLM, transformers.CamembertModel],
    "albert": [transformers.AlbertForPreTraining, transformers.AlbertForMaskedLM, transformers.AlbertModel],
    "electra": [transformers.ElectraForPreTraining, transformers.ElectraForMaskedLM, transformers.ElectraModel],
    "distilbert": [transformers.DistilBertForMaskedLM, transformers.DistilBertModel],
    "ernie": [transformers.ErnieForPreTraining, transformers.ErnieForMaskedLM, transformers.ErnieModel],
}
WRITTEN_AS = {"xlm-roberta": "roberta", "camembert": "roberta"}
NO_SEGMENTS = ("distilbert",)
SQUEEZES = {"electra": "gelu", "distilbert": "relu"}  # of the classes for whole texts; of all others tanh


def config_of(family: str, **more: Any) -> Any:
    return transformers.AutoConfig.for_model(family, **{**FAMILIES[family], **more})


def pad_of(config: Any) -> int:
    return config.pad_token_id if config.pad_token_id is not None else 0


def ragged(config: Any, family: str, length: int = 11) -> tuple[Batch, dict[str, Tensor]]:
    """Rows of several lengths, with several segments where there are any; padding is what the family takes for it."""
    luck = torch.Generator().manual_seed(1)
    kinds = getattr(config, "type_vocab_size", 1)
    lengths = torch.tensor([length, length // 2, 1])
    real = torch.arange(length)[None] < lengths[:, None]
    ids = torch.randint(8, config.vocab_size, (3, length), generator=luck).masked_fill(~real, pad_of(config))
    segments = torch.randint(0, kinds, (3, length), generator=luck)
    inputs = {"input_ids": ids, "attention_mask": real.long(), "token_type_ids": segments}
    if family in NO_SEGMENTS:
        del inputs["token_type_ids"]
    return Batch(ids, lengths, segments=segments), inputs


@torch.no_grad()
def ours(parts: Parts, batch: Batch) -> dict[str, Tensor]:
    """All that the heads of pre-training say, under the names of transformers' outputs."""
    encoded = parts.backbone.eval()(batch)
    where = batch.mask()
    found = {"hidden": encoded.last[where]}
    if "mlm" in parts.heads:
        logits = parts.heads["mlm"](encoded.last, parts.backbone.token_table())
        found["mlm"] = logits[..., : parts.backbone.vocab][where]
    if "rtd" in parts.heads:
        found["rtd"] = parts.heads["rtd"](encoded.last)[where]
    if "pooler" in parts.heads:
        found["pooled"] = parts.heads["pooler"](encoded.last[:, 0]).tanh()
        found |= {name: parts.heads[name](found["pooled"]) for name in ("nsp", "sop") if name in parts.heads}
    return found


@torch.no_grad()
def theirs(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    said = model(**inputs, output_hidden_states=True)
    where = inputs["attention_mask"].bool()
    found = {"hidden": said.hidden_states[-1][where]}
    name = type(model).__name__
    if name == "ElectraForPreTraining":
        found["rtd"] = said.logits[where]
    elif name.endswith("ForMaskedLM"):
        found["mlm"] = said.logits[where]
    elif name.endswith("ForPreTraining"):
        found["mlm"] = said.prediction_logits[where]
        found |= {"sop": said.sop_logits} if "sop_logits" in said else {"nsp": said.seq_relationship_logits}
        found["pooled"] = model.base_model(**inputs).pooler_output
    elif "pooler_output" in said and said.pooler_output is not None:
        found["pooled"] = said.pooler_output
    return found


def assert_all_equal(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert_equal(found[name], wanted[name])


def write(parts: Parts, folder: Path) -> Path:
    folder.mkdir()
    save_parts(folder, parts)
    return folder


PAIRS = [
    (shape, family, kind)
    for shape, who in SHAPES.items()
    for family in who
    for kind in (HEADS[family] if shape in ("plain", "wide", "untied", "task types") else HEADS[family][:1])
    if shape != "untied" or not kind.__name__.endswith("Model")
]


@pytest.mark.parametrize(("shape", "family", "kind"), PAIRS, ids=lambda value: getattr(value, "__name__", value))
def test_pretrained_models_both_ways(shape: str, family: str, kind: Any, tmp_path: Path) -> None:
    config = config_of(family, **SHAPES[shape][family])
    model = noisy(kind(config))
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    batch, inputs = ragged(config, family)
    wanted = theirs(model, inputs)
    assert_all_equal(ours(parts, batch), wanted)
    assert parts.unused == []

    folder = write(parts, tmp_path / "ours")
    written = WRITTEN_AS.get(family, family)
    assert json.loads((folder / "config.json").read_text())["model_type"] == written
    name = kind.__name__.replace("XLMRoberta", "Roberta").replace("Camembert", "Roberta")
    back, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True, dtype=torch.float64)
    assert back.config.architectures == [name]
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    if shape not in ("task types", "padding first", "padding late"):  # fewer tables, or other rows that are never used
        assert back.num_parameters() == model.num_parameters()
    assert_all_equal(theirs(back.eval(), inputs), wanted)
    again = load_parts(folder)
    assert again.backbone.config == parts.backbone.config
    assert_all_equal(ours(again, batch), wanted)


@pytest.mark.parametrize("labels", [1, 7])
def test_sentence_order_with_other_than_two_outputs_is_left_out(
    labels: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There it has as many as config.json has labels; the rest of the model is none the worse for it."""
    model = noisy(transformers.AlbertForPreTraining(config_of("albert", num_labels=labels)))
    model.save_pretrained(tmp_path)
    parts = load_parts(tmp_path)
    assert f"sentence order has {labels} outputs" in "".join(capsys.readouterr())
    batch, inputs = ragged(model.config, "albert")
    wanted = theirs(model, inputs)
    del wanted["sop"]
    assert_all_equal(ours(parts, batch), wanted)


# ---- heads of tasks -------------------------------------------------------------------------------------------------

TASKS = [(family, case) for family in FAMILIES for case in CASES]


@torch.no_grad()
def their_logits(model: Any, kind: str, items: list[Item], family: str) -> Tensor:
    task = build_task("x", TaskConfig(kind, ("a", "b")), Encoder(EncoderConfig(97, 8, 1, 1)))  # type: ignore[arg-type]
    batch = task.collate(items, pad_of(model.config))
    mask = batch.mask()
    assert mask is not None
    inputs = {"input_ids": batch.ids, "attention_mask": mask.long(), "token_type_ids": batch.segments}
    if family in NO_SEGMENTS:
        del inputs["token_type_ids"]
    if kind == "choice":
        inputs = {
            name: value.view(len(items), -1, value.shape[-1]) for name, value in inputs.items() if value is not None
        }
    said = model.eval()(**inputs)
    return torch.stack([said.start_logits, said.end_logits], -1) if kind == "qa" else said.logits


@pytest.mark.parametrize(("family", "case"), TASKS)
def test_task_heads_both_ways(family: str, case: str, tmp_path: Path) -> None:
    kind, more = CASES[case]
    items = items_of(kind, segments=family in ("albert", "electra", "ernie"))
    model = noisy(AUTO[kind].from_config(config_of(family, **more)))
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    where, wanted = real(kind, items), their_logits(model, kind, items, family)
    (task,) = parts.tasks.values()
    assert (task.config.kind, task.config.multi) == (kind, case == "several labels")
    assert task.config.squeeze == ("tanh" if kind in ("tag", "qa") else SQUEEZES.get(family, "tanh"))
    assert_equal(logits(task, parts, items)[where], wanted[where])
    assert parts.unused == []

    folder = write(parts, tmp_path / "ours")
    back, report = AUTO[kind].from_pretrained(folder, output_loading_info=True, dtype=torch.float64)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert back.config.model_type == WRITTEN_AS.get(family, family)
    assert_equal(their_logits(back, kind, items, family)[where], wanted[where])
    if kind in ("classify", "tag"):
        assert back.config.id2label == model.config.id2label
    again = load_parts(folder)
    assert torch.equal(logits(again.tasks[kind], again, items)[where], logits(task, parts, items)[where])


OURS: dict[str, dict[str, Any]] = {
    "roberta": {"segments": 1},
    "albert": {"share": "all", "embedding_width": 8},
    "electra": {"embedding_width": 8},
    "distilbert": {"segments": 0},
}
SEVERAL = {
    "topic": TaskConfig("classify", ("x", "y", "z")),
    "names": TaskConfig("tag", ("O", "B-Ö")),
    "mean": TaskConfig("classify", ("a", "b"), pooling="mean"),
    "which": TaskConfig("choice"),
    "bent": TaskConfig("classify", ("x", "y"), squeeze="gelu"),
    "cut": TaskConfig("regress", squeeze="relu"),
}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("family", OURS)
def test_all_our_tasks_survive(family: str, order: int, tmp_path: Path) -> None:
    """Those that a class there computes are written in its place, the others beside it."""
    names = list(SEVERAL)[::order]
    parts = together({name: SEVERAL[name] for name in names}, **OURS[family])
    parts.family = family
    folder = write(parts, tmp_path / "ours")
    assert json.loads((folder / "config.json").read_text())["model_type"] == family
    back = load_parts(folder)
    assert list(back.tasks) == names
    for name, task in parts.tasks.items():
        items = items_of(task.config.kind, segments=OURS[family].get("segments", 2) > 1)
        assert torch.equal(logits(back.tasks[name], back, items), logits(task, parts, items)), name
    lead = next(
        name
        for name in names
        if name == "names"
        or (SEVERAL[name].pooling == "pooler" and SEVERAL[name].squeeze == SQUEEZES.get(family, "tanh"))
    )
    kind = SEVERAL[lead].kind
    items = items_of(kind, segments=OURS[family].get("segments", 2) > 1)
    model, report = AUTO[kind].from_pretrained(folder, output_loading_info=True, dtype=torch.float64)
    assert not report["missing_keys"]
    where = real(kind, items)
    assert_equal(their_logits(model, kind, items, family)[where], logits(parts.tasks[lead], parts, items)[where])


# ---- which family is written ----------------------------------------------------------------------------------------

PLAIN = EncoderConfig(97, 24, 2, 4, inner=40, max_length=30)
RULES: dict[str, tuple[EncoderConfig, set[str], str, str | None]] = {
    "plain": (PLAIN, {"mlm", "pooler", "nsp"}, "", "bert"),
    "no heads": (PLAIN, set(), "", "bert"),
    "the default inner width": (replace(PLAIN, inner=0), set(), "", "bert"),
    "another start": (replace(PLAIN, init=0.01), set(), "", "bert"),
    "one segment": (replace(PLAIN, segments=1), {"mlm"}, "", "bert"),
    "one segment, wanted": (replace(PLAIN, segments=1), {"mlm"}, "roberta", "roberta"),
    "one segment, wanted by a sibling": (replace(PLAIN, segments=1), {"mlm"}, "xlm-roberta", "roberta"),
    "two segments, wanted": (PLAIN, {"mlm"}, "roberta", "bert"),
    "next sentences, wanted": (replace(PLAIN, segments=1), {"mlm", "pooler", "nsp"}, "roberta", "bert"),
    "ReLU, wanted": (replace(PLAIN, segments=1, activation="relu"), {"mlm"}, "roberta", "bert"),
    "ernie, wanted": (PLAIN, {"mlm"}, "ernie", "ernie"),
    "replaced tokens": (PLAIN, {"rtd"}, "", "electra"),
    "narrow": (replace(PLAIN, embedding_width=8), {"mlm"}, "", "electra"),
    "narrow and shared": (replace(PLAIN, embedding_width=8, share="all"), {"mlm", "sop"}, "", "albert"),
    "shared alone": (replace(PLAIN, share="all"), {"mlm"}, "", None),
    "half shared": (replace(PLAIN, embedding_width=8, share="attention"), {"mlm"}, "", None),
    "no segments": (replace(PLAIN, segments=0), {"mlm"}, "", "distilbert"),
    "no segments, another eps": (replace(PLAIN, segments=0, eps=1e-6), {"mlm"}, "", None),
    "norms first": (replace(PLAIN, order="pre"), {"mlm"}, "", "megatron-bert"),
    "norms first and rotary": (replace(PLAIN, order="pre", positions="rotary", segments=0), {"mlm"}, "", "esm"),
    "no biases": (replace(PLAIN, bias=False), {"mlm"}, "", None),
    "sinusoids": (replace(PLAIN, positions="sinusoidal"), {"mlm"}, "", None),
    "gated": (replace(PLAIN, activation="geglu"), {"mlm"}, "", None),
    "from left to right": (replace(PLAIN, causal=True), {"mlm"}, "", None),
    "unknown, wanted": (PLAIN, {"mlm"}, "gpt2", "bert"),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_family_that_is_chosen(rule: str) -> None:
    config, heads, wanted, kind = RULES[rule]
    found = find_family(config, heads, wanted)
    assert (None if found is None else found[0]) == kind


def pieces(kind: str, pad: int = 1) -> Tokenizer:
    """A tokenizer of single letters, with RoBERTa's tokens."""
    specials = ["<s>", "</s>", "<unk>", "<mask>"]
    specials.insert(pad, "<pad>")
    tokens = [
        *specials,
        *(f"{'##' if kind == 'wordpiece' and again else ''}{c}" for again in (0, 1) for c in "abcdefg"),
    ]
    vocab = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    if kind == "unigram":
        backend = Backend(
            models.Unigram([(token, -1.0) for token in vocab], unk_id=vocab["<unk>"], byte_fallback=False)
        )
    elif kind == "bpe":
        backend = Backend(models.BPE(vocab, [], unk_token="<unk>"))
    else:
        backend = Backend(models.WordPiece(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(specials)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[(token, vocab[token]) for token in ("<s>", "</s>")],
    )  # fmt: skip
    roles = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    return Tokenizer(backend, roles, 30)


def trained(tokenizer: Tokenizer, **settings: Any) -> Parts:
    """A model of ours as pre-training leaves it."""
    config = replace(PLAIN, vocab=len(tokenizer), **settings)
    parts = Parts(Encoder(config), {}, tokenizer)
    narrow = config.embedding_width or config.width
    parts.heads["mlm"] = MaskedLMHead(config.width, narrow, config.vocab, "gelu", config.eps)
    for number, module in enumerate((parts.backbone, *parts.heads.values())):
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in module.double().parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    return parts


@pytest.mark.parametrize(("kind", "pad"), [("bpe", 1), ("bpe", 0), ("unigram", 3), ("wordpiece", 1)])
def test_a_model_of_ours_opens_there_with_its_tokenizer(kind: str, pad: int, tmp_path: Path) -> None:
    """One segment: RoBERTa if the tokenizer is like RoBERTa's, else BERT; pairs work, though the template has two."""
    parts = trained(pieces(kind, pad), segments=1)
    wanted = "" if kind == "wordpiece" else "roberta"
    assert wanted_family(parts) == wanted
    save_parts(tmp_path, parts)
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert model.config.model_type == (wanted or "bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts, others = ["a b <mask> d", "a", "g f"], ["e f g", "b c d e f g", ""]
    inputs = tokenizer(texts, others, padding=True, return_tensors="pt")
    assert "token_type_ids" not in inputs
    lengths = inputs["attention_mask"].sum(1)
    assert [len(parts.tokenizer.encode_pair(*pair).ids) for pair in zip(texts, others, strict=True)] == lengths.tolist()  # type: ignore[union-attr]
    found = ours(parts, Batch(inputs["input_ids"], lengths))
    assert_all_equal(found, theirs(model, dict(inputs)))
    again = load_parts(tmp_path)
    assert again.backbone.config == replace(parts.backbone.config, inner=40)
    assert_all_equal(ours(again, Batch(inputs["input_ids"], lengths)), found)


def test_heads_of_all_objectives_survive(tmp_path: Path) -> None:
    """Also those that the family has no place for: sentence order on a BERT, replaced tokens on one with norms first."""
    for number, settings in enumerate(({}, {"order": "pre"}, {"share": "all"}, {"embedding_width": 8, "share": "all"})):
        parts = trained(pieces("wordpiece"), **settings)
        pair = PairHead(24)
        parts.heads |= {
            "pooler": pair.pooler,
            "nsp": pair.out,
            "sop": PairHead(24).out,
            "rtd": ReplacedHead(24, "gelu"),
        }
        for head in parts.heads.values():
            head.double()
        folder = write(parts, tmp_path / str(number))
        back = load_parts(folder).state()
        assert back.keys() == parts.state().keys()
        rows = len(parts.tokenizer)  # type: ignore[arg-type]
        for name, tensor in parts.state().items():
            kept = slice(None) if "tokens" not in name or number == 2 else slice(rows)
            assert torch.equal(back[name][kept], tensor[kept]), name
        if number != 2:
            model = transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float64).eval()
            batch, inputs = ragged(model.config, model.config.model_type)
            assert_equal(theirs(model, inputs)["mlm"], ours(parts, batch)["mlm"])


# ---- what does not open ---------------------------------------------------------------------------------------------

REFUSED = {
    "albert groups": ("albert", {"num_hidden_groups": 2}, "num_hidden_groups = 2 is not supported; only 1 is"),
    "albert inner groups": ("albert", {"inner_group_num": 3}, "inner_group_num = 3 is not supported; only 1 is"),
    "roberta relu": ("roberta", {"hidden_act": "relu"}, "the activation 'relu' is not known here; known are gelu"),
    "electra relu": ("electra", {"hidden_act": "relu"}, "the activation 'relu' is not known here; known are gelu"),
    "distilbert silu": ("distilbert", {"activation": "silu"}, "the activation 'silu' is not known here"),
    "which key": ("albert", {"hidden_act": "mish"}, "hidden_act: the activation 'mish' is not known here"),
    "roberta decoder": ("roberta", {"is_decoder": True}, "is_decoder = True is not supported; only False is"),
    "roberta positions": ("roberta", {"max_position_embeddings": 2}, "leaves no positions behind pad_token_id"),
    "ernie relative": ("ernie", {"position_embedding_type": "relative_key"}, "only 'absolute' is"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    family, more, message = REFUSED[case]
    config = config_of(family).to_dict() | more
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SesameError, match=r"config\.json: ") as error:
        load_parts(tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# ---- published weights ----------------------------------------------------------------------------------------------

WEIGHTS = os.environ.get("SESAME_WEIGHTS", "")


@pytest.mark.weights
@pytest.mark.skipif(not WEIGHTS, reason="no weights: run `make weights` and set SESAME_WEIGHTS to its folder")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_published_albert(dtype: torch.dtype, tolerance: float, tmp_path: Path) -> None:
    """The reaction mapper's ALBERT, 12 layers on 591 pieces: logits as published, and equal to transformers'."""
    folder = Path(WEIGHTS) / "rxnmapper/rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
    parts = load_parts(folder)
    for module in (parts.backbone, *parts.heads.values()):
        module.to(dtype)
    assert set(parts.heads) == {"mlm", "pooler"}
    model = transformers.AlbertForMaskedLM.from_pretrained(folder, dtype=dtype).eval()
    batch, inputs = ragged(model.config, "albert", 37)
    wanted = theirs(model, inputs)
    for name, tensor in wanted.items():
        scale = max(1.0, float(tensor.abs().max()))
        assert (ours(parts, batch)[name] - tensor).abs().max() < tolerance * scale, name
    few = Batch(torch.tensor([[12, 16, 16, 19, 13]]), torch.tensor([5]))
    figures = torch.tensor([-10.867720, -11.624331, -7.348393, -9.205839])
    assert (ours(parts, few)["mlm"][1, :4] - figures).abs().max() < 1e-5
    back = transformers.AlbertForMaskedLM.from_pretrained(write(parts, tmp_path / "ours"), dtype=dtype).eval()
    assert all(torch.equal(back.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
