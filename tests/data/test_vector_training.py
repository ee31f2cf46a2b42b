"""Training of static vectors: GloVe's counts, slopes and optimum; gensim's models as files."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from sesame.data.glove import GloVe, Pairs, count_pairs, train_glove
from sesame.data.vector_files import read_vectors
from sesame.data.vector_training import Training, train_vectors
from sesame.errors import SesameError

GROUPS = (["cat", "dog", "cow"], ["red", "green", "blue"], ["one", "two", "six"])


def corpus(folder: Path, seed: int, lines: int = 400) -> Path:
    """Words of a group stand between the same two signs."""
    luck = random.Random(seed)
    made = []
    for _ in range(lines):
        group = luck.randrange(3)
        made.append(" ".join(f"left{group} {luck.choice(GROUPS[group])} right{group}" for _ in range(4)))
    (folder / "text.txt").write_text("\n".join(made) + "\nOnce\n")
    return folder / "text.txt"


def test_pairs_count_by_distance() -> None:
    found = count_pairs([np.array([0, 1, -1, 0]), np.array([1, 1])], 2, window=3)
    table = np.zeros((2, 2))
    table[found.rows, found.columns] = found.counts
    # 0 at 0, 1 at 1, 0 at 3: (0,1) at distance 1, (1,0) at 2, (0,0) at 3; in the second text (1,1) at 1; both ways
    np.testing.assert_allclose(table, [[2 / 3, 1 + 1 / 2], [1 + 1 / 2, 2]], rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_step_goes_down_the_papers_loss(seed: int) -> None:
    torch.manual_seed(seed)
    model = GloVe(5, 3, seed)
    rows, columns = torch.tensor([0, 1, 1, 4, 0]), torch.tensor([1, 0, 2, 4, 1])
    counts = torch.tensor([250.0, 3.0, 40.0, 1.0, 7.0])
    before = [side.clone().requires_grad_() for side in model.sides]
    w, c = before[0][rows], before[1][columns]
    wrong = (w[:, :3] * c[:, :3]).sum(1) + w[:, 3] + c[:, 3] - counts.log()
    loss = 0.5 * ((counts / 100).pow(0.75).clamp(max=1) * wrong**2).sum()
    loss.backward()
    assert model.step(rows, columns, counts, 0.05) == pytest.approx(float(loss.detach()), rel=1e-5)
    for side, old in zip(model.sides, before, strict=True):
        assert old.grad is not None
        torch.testing.assert_close(side, old.detach() - 0.05 * old.grad)  # sums of squares begin at 1
    assert float(model.squares[0][0].min()) >= 1.0


@pytest.mark.parametrize("seed", range(2))
def test_glove_finds_vectors_whose_products_are_the_counts(seed: int) -> None:
    luck = np.random.default_rng(seed)
    w, c = luck.normal(size=(2, 12, 3)) * 0.6
    rows, columns = np.divmod(np.arange(144), 12)
    counts = np.exp((w[rows] * c[columns]).sum(1) + 3).astype(np.float32)
    losses: list[float] = []
    train_glove(Pairs(rows, columns, counts), 12, 6, 1500, seed, lambda _, loss: losses.append(loss))
    assert losses[-1] < losses[0] / 1000


@pytest.mark.parametrize("seed", range(2))
def test_glove_groups_words_by_what_stands_around_them(tmp_path: Path, seed: int) -> None:
    how = Training("glove", width=8, window=1, epochs=60, min_count=2, seed=seed)
    found, _ = train_vectors([corpus(tmp_path, seed)], how)
    assert "once" not in found.words
    _grouped(found)
    again, _ = train_vectors([tmp_path / "text.txt"], how)
    assert np.array_equal(found.matrix, again.matrix)


def _grouped(found: object) -> None:
    for group in GROUPS:
        for word in group:
            near = [other for other, _ in found.neighbors(word, 20) if any(other in g for g in GROUPS)][:2]  # type: ignore[attr-defined]
            assert set(near) == set(group) - {word}, (word, near)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["word2vec", "fasttext"])
@pytest.mark.filterwarnings("ignore")  # of the package
def test_gensim_trains_the_others(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("gensim")
    how = Training(kind, width=8, window=1, epochs=20, min_count=2, seed=1)
    found, model = train_vectors([corpus(tmp_path, 1)], how)
    assert set(found.words) == set(model.wv.index_to_key)
    assert np.array_equal(found.vector("cat"), model.wv["cat"])
    again, _ = train_vectors([tmp_path / "text.txt"], how)
    assert np.array_equal(found.matrix, again.matrix)


@pytest.mark.parametrize("kind", ["word2vec", "fasttext"])
@pytest.mark.filterwarnings("ignore")
def test_a_text_on_one_line_is_read_to_its_end(tmp_path: Path, kind: str) -> None:
    """Gensim itself would read 10,000 words of a sentence."""
    pytest.importorskip("gensim")
    words = ["a", "b", "c", "d"] * 2500 + ["x", "y", "x", "z"] * 600
    (tmp_path / "one.txt").write_text(" ".join(words) + "\n")
    (tmp_path / "two.txt").write_text(" ".join(words[:10_000]) + "\n" + " ".join(words[10_000:]) + "\n")
    how = Training(kind, width=4, epochs=1)
    one, two = (train_vectors([tmp_path / f"{name}.txt"], how)[0] for name in ("one", "two"))
    assert one.words == two.words
    assert np.array_equal(one.matrix, two.matrix)


@pytest.mark.parametrize("kind", ["word2vec", "fasttext"])
@pytest.mark.filterwarnings("ignore")
def test_the_rate_falls_over_the_whole_text(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the words are rare and get no vector, but they are read."""
    made = pytest.importorskip("gensim").models.Word2Vec
    shares: list[float] = []
    whole = made._get_next_alpha

    def noted(model: object, share: float, epoch: int) -> float:
        shares.append(share)
        return float(whole(model, share, epoch))

    monkeypatch.setattr(made, "_get_next_alpha", noted)
    lines = [f"a rare{number} b odd{number}" for number in range(10_000)]
    (tmp_path / "t.txt").write_text("\n".join(lines) + "\n")
    train_vectors([tmp_path / "t.txt"], Training(kind, width=2, epochs=1))
    assert 0.6 < max(shares) <= 1.0  # told in steps of 10,000 words


@pytest.mark.parametrize("least", [0, 1, 3])
@pytest.mark.filterwarnings("ignore")
def test_a_fasttext_file_has_the_letters_of_gensim(tmp_path: Path, least: int) -> None:
    pytest.importorskip("gensim")
    from gensim.models.fasttext import FastText, save_facebook_model

    words = [line.lower().split() for line in corpus(tmp_path, 2).read_text().split("\n")]
    model = FastText(words, vector_size=8, epochs=2, min_count=2, min_n=least, bucket=1000)
    save_facebook_model(model, str(tmp_path / "f.bin"))
    found = read_vectors(tmp_path / "f.bin", policy="letters")
    for word in ("cat", "left0", "cats", "лук", "left9"):
        np.testing.assert_allclose(found.vector(word), model.wv[word], atol=1e-6)


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="--kind"):
        Training("bert")
    for seed in (-1, 2**32):
        with pytest.raises(SesameError, match="--seed"):
            Training(seed=seed)
    (tmp_path / "t.txt").write_text("one two three\n")
    with pytest.raises(SesameError, match="--min-count 1"):
        train_vectors([tmp_path / "t.txt"], Training("glove"))
