"""Models of words: vectors stand where they should, frozen ones stay, and `sesame finetune` teaches them to tag."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from sesame.backbones import Words, WordsConfig, build_backbone
from sesame.checkpoint.folder import load_parts, save_parts
from sesame.checkpoint.word_model import count_words, word_model
from sesame.data.batch import Batch
from sesame.data.examples import Example
from sesame.data.vectors import Vectors
from sesame.errors import SesameError
from sesame.finetuning.run import Wishes, finetune

NAMES, VERBS, OTHERS = ["anna", "otto", "ida", "emil"], ["sees", "hears"], ["the", "a", "dog"]


def vectors(seed: int, policy: str = "unk") -> Vectors:
    words = (*NAMES, *VERBS, *OTHERS)
    return Vectors(words, np.random.default_rng(seed).normal(size=(len(words), 8)).astype(np.float32), policy)


@pytest.mark.parametrize("policy", ["unk", "random", "class", "letters"])
def test_every_word_has_its_vector(tmp_path: Path, policy: str) -> None:
    given = vectors(0, policy)
    made = word_model(Counter({"Anna": 3, "annas": 2, "rare": 1}), given, width=16, frozen=True)
    (tmp_path / "model").mkdir()
    save_parts(tmp_path / "model", made)
    found = load_parts(tmp_path / "model")
    assert found.tokenizer is not None
    assert isinstance(found.backbone, Words)
    table = found.backbone.token_table().detach().numpy()
    assert not found.backbone.token_table().requires_grad

    def row(word: str) -> np.ndarray:
        (id,) = found.tokenizer.encode(word).ids
        return table[id]

    for word in given.words:
        assert np.array_equal(row(word), given.vector(word))
    assert np.array_equal(row("ANNA"), given.vector("anna"))  # no vector has capitals, so none count
    assert np.array_equal(row("annas"), given.vector("annas", policy))
    assert np.array_equal(row("rare"), given.vector("rare", "unk"))
    assert not table[found.tokenizer.id("pad")].any()


def test_words_are_those_of_the_rows() -> None:
    rows = [Example("a", "U.S. wins", words=((0, 4), (5, 9))), Example("b", "it  wins")]
    assert count_words(rows) == Counter({"wins": 2, "U.S.": 1, "it": 1})
    made = word_model(count_words(rows), min_count=2, width=16, word_width=8)
    assert made.tokenizer is not None
    assert made.tokenizer.tokens()[5:] == ["wins"]
    with pytest.raises(SesameError, match="--frozen"):
        word_model(count_words(rows), frozen=True)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("seed", range(2))
def test_padding_and_company_change_nothing(cell: str, seed: int) -> None:
    torch.manual_seed(seed)
    backbone = build_backbone(WordsConfig(20, 12, 2, 6, cell=cell)).eval()  # type: ignore[arg-type]
    rows = [torch.randint(1, 20, (size,)) for size in (5, 2, 7)]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    with torch.inference_mode():
        together = backbone(Batch(ids, torch.tensor([5, 2, 7])))
        assert [layer.shape for layer in together.layers] == [(3, 7, 12)] * 3
        for number, row in enumerate(rows):
            alone = backbone(Batch(row[None], torch.tensor([len(row)]))).last[0]
            torch.testing.assert_close(together.last[number, : len(row)], alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_the_ordinary_command_teaches_it_to_tag(tmp_path: Path, frozen: bool) -> None:
    luck = np.random.default_rng(3)
    lines = []
    for _ in range(120):
        who, whom = luck.choice(NAMES[:3], 2)  # emil is in no row
        for word in (who, str(luck.choice(VERBS)), "the", "dog", "a", whom):
            lines.append(f"{word} {'B-PER' if word in NAMES else 'O'}")
        lines.append("")
    (tmp_path / "train.conll").write_text("\n".join(lines) + "\n")
    given = vectors(1)
    given.matrix[:4, 0] = 4.0  # what names have in common
    made = word_model(Counter(), given, frozen=frozen, width=16, dropout=0.1)
    (tmp_path / "model").mkdir()
    save_parts(tmp_path / "model", made)
    best = finetune(
        Wishes(
            str(tmp_path / "model"), "tag", str(tmp_path / "train.conll"), tmp_path / "run", seeds=1, baselines=False,
            settings=("optimizer.rate=2e-2", "epochs=12.0", "rate_width=0"), device="cpu",
        )
    )  # fmt: skip
    taught = load_parts(best)
    table = taught.backbone.token_table().detach()
    assert torch.equal(table, made.backbone.token_table().detach()) == frozen
    import sesame

    (reply,) = sesame.load(best, "cpu").predict(["emil sees the dog"])
    assert reply["tags"] == ["B-PER", "O", "O", "O"]


def test_wrong_settings_are_told() -> None:
    for wrong in ({"width": 7}, {"width": 8, "word_width": 9}, {"width": 8, "dropout": 1.0}):
        with pytest.raises(SesameError, match="backbone"):
            WordsConfig(10, **wrong)  # type: ignore[arg-type]
