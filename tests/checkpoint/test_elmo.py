"""ELMo's published layout: files written by hand, read in numpy by the rules of TensorFlow; our own files; the fixture."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

import sesame
from sesame.backbones import BiLM, BiLMConfig, Encoder, EncoderConfig, State
from sesame.checkpoint.elmo import read_elmo, read_files, read_options, spelling_tokenizer, write_elmo
from sesame.checkpoint.loading import load_parts
from sesame.cli import app
from sesame.errors import SesameError
from sesame.text.characters import spell

h5py = pytest.importorskip("h5py")
Array = NDArray[np.float64]
WEIGHTS = os.environ.get("SESAME_WEIGHTS", "")
FIXTURE = Path(WEIGHTS) / "allennlp" / "allennlp" / "tests" / "fixtures" / "elmo"
P, C, E, FILTERS, DEPTH = 6, 9, 4, [[1, 3], [2, 5]], 2
FOUND = sum(count for _, count in FILTERS)
OPTIONS = {
    "lstm": {"use_skip_connections": True, "projection_dim": P, "cell_clip": 0.5, "proj_clip": 0.5, "dim": C,
             "n_layers": DEPTH},
    "char_cnn": {
        "activation": "relu", "filters": FILTERS, "n_highway": 1, "embedding": {"dim": E},
        "n_characters": 262, "max_characters_per_token": 50,
    },
}  # fmt: skip
WORDS = ["When", "ёжик", "wrote", ",", "nobody", "read"]


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"char_embed": (261, E), "CNN_proj/W_proj": (FOUND, P), "CNN_proj/b_proj": (P,)}
    for number, (width, count) in enumerate(FILTERS):
        found |= {f"CNN/W_cnn_{number}": (1, width, E, count), f"CNN/b_cnn_{number}": (count,)}
    for name in ("transform", "carry"):
        found |= {f"CNN_high_0/W_{name}": (FOUND, FOUND), f"CNN_high_0/b_{name}": (FOUND,)}
    for side in range(2):
        for layer in range(DEPTH):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            found |= {f"{cell}/W_0": (2 * P, 4 * C), f"{cell}/B": (4 * C,), f"{cell}/W_P_0": (C, P)}
    return found


def by_hand(folder: Path, seed: int) -> dict[str, Any]:
    """Files as the authors' code writes them, with seeded noise."""
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes().items()}
    (folder / "small_options.json").write_text(json.dumps(OPTIONS))
    with h5py.File(folder / "small_weights.hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def their_layers(w: dict[str, Any], words: list[str]) -> list[Array]:
    """What TensorFlow computes: one sentence, all layers. The order of its gates is i, j, f, o, and f gets 1 more."""
    x = np.concatenate([np.zeros((1, E)), w["char_embed"]])[spell(words)]  # (W, 50, E)
    found = []
    for number, (width, _) in enumerate(FILTERS):
        windows = np.stack([x[:, at : at + width] for at in range(50 - width + 1)], 1)
        found.append(np.einsum("naij,ijf->naf", windows, w[f"CNN/W_cnn_{number}"][0]).max(1) + w[f"CNN/b_cnn_{number}"])
    x = np.maximum(np.concatenate(found, -1), 0)
    gate = sigmoid(x @ w["CNN_high_0/W_carry"] + w["CNN_high_0/b_carry"])
    x = gate * np.maximum(x @ w["CNN_high_0/W_transform"] + w["CNN_high_0/b_transform"], 0) + (1 - gate) * x
    x = x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"]
    sides = []
    for side in range(2):
        read, layers = (x if side == 0 else x[::-1]), []
        for layer in range(DEPTH):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            h, c, states = np.zeros(P), np.zeros(C), []
            for word in read:
                i, j, f, o = np.split(np.concatenate([word, h]) @ w[f"{cell}/W_0"] + w[f"{cell}/B"], 4)
                c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -0.5, 0.5)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ w[f"{cell}/W_P_0"], -0.5, 0.5)
                states.append(h)
            read = np.stack(states) + (read if layer else 0)
            layers.append(read if side == 0 else read[::-1])
        sides.append(layers)
    return [np.concatenate([x, x], -1), *(np.concatenate(pair, -1) for pair in zip(*sides, strict=True))]


def our_layers(backbone: BiLM, words: list[str]) -> list[Array]:
    letters = torch.from_numpy(spell(words))[None]
    with torch.no_grad():
        encoded = backbone.eval().from_letters(letters, torch.tensor([letters.shape[1]]))
    return [layer[0].numpy() for layer in encoded.layers]


@pytest.mark.parametrize("seed", range(3))
def test_a_file_written_by_hand_gives_the_authors_numbers(seed: int, tmp_path: Path) -> None:
    arrays = by_hand(tmp_path, seed)
    backbone = read_files(tmp_path / "small_options.json", tmp_path / "small_weights.hdf5").double()
    for ours, theirs in zip(our_layers(backbone, WORDS), their_layers(arrays, WORDS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-7)  # the forget gate's 1 is added in 32 bits


def test_what_is_read_is_written_again_bit_by_bit(tmp_path: Path) -> None:
    arrays = by_hand(tmp_path, 0)
    backbone = read_files(tmp_path / "small_options.json", tmp_path / "small_weights.hdf5")
    (tmp_path / "again").mkdir()
    write_elmo(tmp_path / "again", backbone)
    assert json.loads((tmp_path / "again" / "options.json").read_text()) == OPTIONS
    with h5py.File(tmp_path / "again" / "weights.hdf5") as file:
        for name, array in arrays.items():
            found = file[name][...]
            if name.endswith("/B"):  # 1 is added and taken away again, which rounds
                np.testing.assert_allclose(found, array, rtol=0, atol=1.2e-7)
            else:
                assert np.array_equal(found, array), name


def test_our_own_model_goes_out_and_comes_back(tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = BiLMConfig(300, width=8, cell=5, letter_width=3, filters=((1, 2), (3, 4)), residual=False, clip=0.0)
    ours = BiLM(config)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        assert ours.letters is not None
        ours.letters.letters.weight[0] = 0.0  # nothing is read there, and nothing written
    write_elmo(tmp_path, ours)
    back = read_elmo(tmp_path).backbone
    assert isinstance(back, BiLM)
    for x, y in zip(our_layers(ours, WORDS), our_layers(back, WORDS), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_commands_open_published_files_and_write_them(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    by_hand(tmp_path / "published", 1)
    wanted = our_layers(read_files(*sorted((tmp_path / "published").iterdir())), WORDS)[1]
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "published"), "--out", str(tmp_path / "ours")])
    assert result.exit_code == 0, result.output
    text = " ".join(WORDS)
    found = sesame.load(tmp_path / "ours").embed_tokens(text, "1")[1]
    words = spelling_tokenizer().encode(text, special=True).words
    first = [at for at, word in enumerate(words) if word is None or words[at - 1] != word]
    np.testing.assert_allclose(found[first], wanted, rtol=1e-5, atol=1e-6)
    result = CliRunner().invoke(
        app, ["convert", str(tmp_path / "ours"), "--to", "elmo", "--out", str(tmp_path / "again")]
    )
    assert result.exit_code == 0, result.output
    again = load_parts(tmp_path / "again").backbone
    assert isinstance(again, BiLM)
    np.testing.assert_allclose(our_layers(again, WORDS)[1], wanted, rtol=1e-5, atol=1e-6)


def test_what_the_authors_code_leaves_out_of_options_is_none_and_one() -> None:
    cnn, lstm = dict(OPTIONS["char_cnn"]), dict(OPTIONS["lstm"])
    said = read_options({"char_cnn": cnn | {"n_highway": 0}, "lstm": lstm | {"n_layers": 1}}, "said")
    del cnn["n_highway"], lstm["n_layers"]
    assert read_options({"char_cnn": cnn, "lstm": lstm}, "left out") == said
    assert read_options({"char_cnn": cnn | {"n_highway": None}, "lstm": lstm}, "null") == said


def test_filters_as_many_as_the_projection_gives_have_none(tmp_path: Path) -> None:
    by_hand(tmp_path, 0)
    options, weights = tmp_path / "small_options.json", tmp_path / "small_weights.hdf5"
    filters = [[1, 3], [2, P - 3]]
    options.write_text(json.dumps({**OPTIONS, "char_cnn": {**OPTIONS["char_cnn"], "filters": filters, "n_highway": 0}}))
    with h5py.File(weights, "a") as file:
        for name in ("CNN_high_0", "CNN_proj", "CNN/W_cnn_1", "CNN/b_cnn_1"):
            del file[name]
        file["CNN/W_cnn_1"] = np.random.default_rng(1).normal(0, 0.5, (1, 2, E, P - 3)).astype(np.float32)
        file["CNN/b_cnn_1"] = np.ones(P - 3, np.float32)
    found = our_layers(read_files(options, weights), WORDS)
    with h5py.File(weights, "a") as file:
        file["CNN_proj/W_proj"], file["CNN_proj/b_proj"] = np.eye(P, dtype=np.float32), np.zeros(P, np.float32)
    for ours, wanted in zip(found, our_layers(read_files(options, weights), WORDS), strict=True):
        np.testing.assert_array_equal(ours, wanted)


def test_mistakes_are_told(tmp_path: Path) -> None:
    by_hand(tmp_path, 0)
    options, weights = tmp_path / "small_options.json", tmp_path / "small_weights.hdf5"
    with pytest.raises(SesameError, match="reads letters"):
        write_elmo(tmp_path, Encoder(EncoderConfig(vocab=20, width=8, depth=1, heads=1)))
    (tmp_path / "no.hdf5").write_bytes(b"nothing")
    with pytest.raises(SesameError, match=r"2 \.hdf5 files"):
        read_elmo(tmp_path)
    with pytest.raises(SesameError, match="not an HDF5 file"):
        read_files(options, tmp_path / "no.hdf5")
    for change, told in (
        ({"n_layers": 3}, "lacks"),
        ({"n_layers": 1}, "has RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/B, of which small_options.json says nothing"),
        ({"dim": 10}, "another shape"),
        ({"proj_clip": 1}, "differ"),
        ({"dim": "many"}, "not the options"),
    ):
        options.write_text(json.dumps({**OPTIONS, "lstm": {**OPTIONS["lstm"], **change}}))
        with pytest.raises(SesameError, match=told):
            read_files(options, weights)
    for section, change, told in (
        ("char_cnn", {"activation": "sigmoid"}, "options.json: the activation 'sigmoid' is not known"),
        ("char_cnn", {"filters": [[1, 3], [2, 0]]}, "options.json: backbone.filters"),
        ("lstm", {"projection_dim": C}, f"options.json: projection_dim is {C} and dim {C}"),
        ("lstm", {"n_layers": 0}, "options.json: backbone.depth is 0"),
        ("char_cnn", {"n_highway": 0}, "has CNN_high_0/W_carry, of which small_options.json says nothing"),
    ):
        options.write_text(json.dumps({**OPTIONS, section: {**OPTIONS[section], **change}}))
        with pytest.raises(SesameError, match=told):
            read_files(options, weights)
    options.write_text(json.dumps(OPTIONS))
    filters, biases = "CNN/W_cnn_0", "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"
    for name, array, told in (
        (filters, np.zeros((1, E, 3), np.float32), "holds arrays that small_options.json does not promise"),
        (filters, np.float32(1.0), "does not promise"),
        (biases, np.zeros(4 * C, np.int32), "does not promise"),
        (biases, np.full(4 * C, np.nan, np.float32), f"{biases} holds values that are no numbers"),
        (biases, np.full(4 * C, np.inf, np.float32), f"{biases} holds values that are no numbers"),
    ):
        by_hand(tmp_path, 0)
        with h5py.File(weights, "a") as file:
            del file[name]
            file[name] = array
        with pytest.raises(SesameError, match=told):
            read_files(options, weights)
    options.write_text("[]")
    with pytest.raises(SesameError, match="not the options"):
        read_files(options, weights)


@pytest.fixture
def published() -> BiLM:
    return read_files(FIXTURE / "options.json", FIXTURE / "lm_weights.hdf5").eval()


@pytest.mark.weights
@pytest.mark.skipif(not WEIGHTS, reason="no weights: run `make weights` and set SESAME_WEIGHTS to its folder")
class TestFixture:
    """Weights and vectors that allennlp 0.9.0 carries; the vectors were computed by the authors' TensorFlow."""

    @torch.no_grad()
    def test_top_layer_of_sentences_whose_states_go_on(self, published: BiLM) -> None:
        """Three rows of ten sentences: each begins with the states that the one before has left."""
        rows = json.loads((FIXTURE / "sentences.json").read_text())
        state: State | None = State()
        for number in range(10):
            spelled = [torch.from_numpy(spell(row[number].split())) for row in rows]
            lengths = torch.tensor([len(letters) for letters in spelled])
            encoded = published.from_letters(torch.nn.utils.rnn.pad_sequence(spelled, True), lengths, state)
            state = encoded.state
            for row in range(3):
                with h5py.File(FIXTURE / f"lm_embeddings_{row}.hdf5") as file:
                    wanted = np.concatenate(list(file[str(number)][...]), -1)
                found = encoded.last[row, 1 : lengths[row] - 1].numpy()
                np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)

    @torch.no_grad()
    def test_word_vectors(self, published: BiLM) -> None:
        words = (FIXTURE / "vocab_test.txt").read_text().strip().split("\n")
        with h5py.File(FIXTURE / "elmo_token_embeddings.hdf5") as file:
            wanted = file["embedding"][...]
        assert len(words) == len(wanted)
        plain = [at for at, word in enumerate(words) if word not in ("<S>", "</S>")]  # marks there, plain letters here
        assert len(plain) >= len(words) - 2
        letters = torch.from_numpy(spell([words[at] for at in plain], False))
        assert published.letters is not None
        np.testing.assert_allclose(published.letters(letters).numpy(), wanted[plain], rtol=1e-6, atol=1e-6)
