"""`sesame pretrain xlnet`: it trains, goes on after a crash, and its folder opens in transformers with equal states."""

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import weights
from transformers import AutoModel, AutoTokenizer, XLNetLMHeadModel

import sesame
from sesame.backbones import XLNet, XLNetConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.cli.models import convert
from sesame.data.docstrings import documents
from sesame.errors import SesameError
from sesame.objectives import Vocab, build
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.pair import NextSentenceConfig
from sesame.objectives.plm import PermutationLMConfig, TableHead
from sesame.objectives.rtd import ReplacedConfig
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from sesame.tasks.embed_windows import windows_of
from sesame.text import Tokenizer, train_tokenizer
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

ROLES = {"unk": 0, "cls": 3, "sep": 4, "pad": 5, "mask": 6}
SETTINGS = (
    "backbone.width=32", "backbone.depth=2", "backbone.heads=2", "objectives.plm.part=24", "stages.main.length=64",
    "stages.main.batch=8", "tokenizer.size=600", "optimizer.rate=1e-3",
)  # fmt: skip
NOTHING = (None,) * 6  # of the other options of `sesame convert`
TEXTS = ["Return the sum.", "A list of all the files that were found, in the order in which they were read.", "No."]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(body for _, body in documents(150_000)) + "\n", encoding="utf-8")
    return path


def train(text: Path, out: Path, **more: Any) -> Path:
    wanted: dict[str, Any] = {"steps": 20, "settings": SETTINGS, "save_steps": 10} | more
    return pretrain(Wishes("xlnet", [str(text)], out, device="cpu", precision="fp32", **wanted))


@pytest.fixture(scope="module")
def final(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(text, tmp_path_factory.mktemp("run") / "calm")


def test_the_recipe_builds() -> None:
    recipe = resolve("xlnet", size="tiny")
    config = {key: value for key, value in recipe.backbone.items() if key != "kind"}
    model = XLNet(XLNetConfig(vocab=100, **config))
    together = build(recipe.objectives, model, Vocab(100, ROLES))
    assert together.needs_words
    assert set(together.heads()) == {"plm"}
    assert recipe.tokenizer.kind == "unigram"
    assert recipe.tokenizer.template == "xlnet"
    with pytest.raises(SesameError, match="leave the other"):
        build({**recipe.objectives, "mlm": MaskedLMConfig()}, model, Vocab(100, ROLES))
    for config in (MaskedLMConfig(), NextSentenceConfig(), ReplacedConfig()):
        name = {"MaskedLMConfig": "mlm", "NextSentenceConfig": "nsp", "ReplacedConfig": "rtd"}[type(config).__name__]
        with pytest.raises(SesameError, match="recipe xlnet"):
            build({name: config}, model, Vocab(100, ROLES))
    for settings in ({"every": 1}, {"part": 5}, {"backward": 2.0}, {"span": 0}):
        with pytest.raises(SesameError, match="plm"):
            PermutationLMConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_crash_changes_nothing(text: Path, final: Path, tmp_path: Path) -> None:
    with crash_while_saving(1):
        train(text, tmp_path / "run")
    assert weights(train(text, tmp_path / "run").parent) == weights(final.parent)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("auto", [AutoModel, XLNetLMHeadModel])
def test_transformers_opens_the_run(auto: Any, final: Path) -> None:
    theirs, report = auto.from_pretrained(final, output_loading_info=True)
    assert not report["missing_keys"]
    if auto is XLNetLMHeadModel:
        assert not report["unexpected_keys"]
    parts = load_parts(final)
    assert parts.unused == []
    assert parts.backbone.config.memory == 384
    tokenizer = AutoTokenizer.from_pretrained(final)
    assert tokenizer.padding_side == "left"
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    hidden = theirs.eval()(**inputs, output_hidden_states=True).hidden_states[-1]
    model = sesame.load(final, "cpu")
    for row, text in enumerate(TEXTS):
        encoding, states = model.embed_tokens(text)
        size = len(encoding.ids)
        assert inputs["input_ids"][row, -size:].tolist() == encoding.ids
        assert inputs["token_type_ids"][row, -size:].tolist() == encoding.segments
        assert encoding.segments[-1] == 2
        assert (hidden[row, -size:] - torch.from_numpy(states)).abs().max() < 1e-4
    vectors = model.embed(TEXTS, pooling="cls")
    assert (hidden[:, -1] - torch.from_numpy(vectors)).abs().max() < 1e-4
    second = model.embed(TEXTS, layers="1", pooling="cls")
    alone = [model.embed([text], layers="1", pooling="cls")[0] for text in TEXTS]
    assert abs(second - alone).max() < 1e-5  # padding never leaks


def test_texts_of_any_length_are_embedded(final: Path) -> None:
    model = sesame.load(final, "cpu")
    assert model.limit == 512
    long = " ".join(TEXTS * 40)
    assert model.embed([long, "short"]).shape == (2, 32)
    (window, *_) = windows_of(model.tokenizer, [long], model.limit)[0]
    assert window.segments[-3:] == [0, 0, 2]
    assert window.ids[-2:] == [model.tokenizer.id("sep"), model.tokenizer.id("cls")]


def test_converted_and_back(final: Path, tmp_path: Path) -> None:
    theirs = XLNetLMHeadModel.from_pretrained(final)
    theirs.save_pretrained(tmp_path / "theirs")
    AutoTokenizer.from_pretrained(final).save_pretrained(tmp_path / "theirs")
    convert(str(tmp_path / "theirs"), tmp_path / "ours", "transformers", *NOTHING)
    ours, before = load_parts(tmp_path / "ours"), load_parts(final)
    assert ours.tokenizer is not None
    assert ours.tokenizer.cls_last
    for name, tensor in before.state().items():
        assert torch.equal(ours.state()[name], tensor)
    with pytest.raises(SesameError, match="ONNX"):
        convert(str(final), tmp_path / "onnx", "onnx", *NOTHING)
    for precision in ("int8", "bf16"):
        with pytest.raises(SesameError, match="fp32 only"):
            sesame.load(final, "cpu", precision=precision)


def test_settings_without_a_place_in_transformers_survive(tmp_path: Path) -> None:
    config = XLNetConfig(
        vocab=100, width=8, depth=1, heads=2, max_length=77, dropout=0.2, attention_dropout=0.3, memory=5
    )
    save_parts(tmp_path, Parts(XLNet(config), {"plm": TableHead(8, 100, tied=False)}))
    parts = load_parts(tmp_path)
    assert parts.backbone.config == XLNetConfig(**{**vars(config), "inner": 32})
    head = parts.heads["plm"]
    assert isinstance(head, TableHead)
    assert head.table is not None


def test_going_on_with_a_model_and_new_words(text: Path, final: Path, tmp_path: Path) -> None:
    before = load_parts(final)
    after = load_parts(train(text, tmp_path / "on", start=str(final), steps=1, extend=5, size=None))
    assert before.tokenizer is not None
    assert after.tokenizer is not None
    assert len(after.tokenizer) == len(before.tokenizer) + 5 == after.backbone.vocab
    assert after.tokenizer.cls_last
    with pytest.raises(SesameError, match="recipe xlnet"):
        pretrain(Wishes("adapt", [str(text)], tmp_path / "bert", start=str(final), device="cpu", steps=1))


def test_a_tokenizer_of_bert_keeps_its_pieces(text: Path, tmp_path: Path) -> None:
    made = train_tokenizer(text.read_text().split("\n"), "wordpiece", 500)
    made.save(tmp_path)
    final = train(text, tmp_path / "run", steps=1, tokenizer=str(tmp_path))
    tokenizer = Tokenizer.load(final)
    assert not made.cls_last
    assert tokenizer.cls_last
    assert tokenizer.tokens() == made.tokens()
    cls, sep = made.id("cls"), made.id("sep")
    body = made.encode("read it").ids
    pair = tokenizer.encode_pair("read it", "read it")
    assert pair.ids == [*body, sep, *body, sep, cls]
    assert pair.segments == [0] * (len(body) + 1) + [1] * (len(body) + 1) + [2]
