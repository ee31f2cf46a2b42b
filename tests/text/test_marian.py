"""Marian's two SentencePiece models with one table of ids: the ids are those of transformers' own tokenizer."""

import json
import random
import warnings
from itertools import pairwise
from pathlib import Path

import pytest
import transformers

from sesame.checkpoint.loading import load_parts
from sesame.data.build import build_pairs, build_store
from sesame.errors import SesameError
from sesame.text import Tokenizer
from sesame.text.marian import marian

SOURCE = "the small cat sat on a warm mat and looked at the birds while rain fell over old houses"
TARGET = "die kleine Katze saß auf einer warmen Matte und sah den Vögeln zu während Regen über alte Häuser fiel"


def corpus(words: str, seed: int) -> list[str]:
    luck = random.Random(seed)
    return [" ".join(luck.choices(words.split(), k=luck.randint(3, 9))) for _ in range(400)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both models are trained on few words; the table joins their pieces as OPUS-MT's does: </s> first, <pad> last."""
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    reader = pytest.importorskip("sentencepiece").SentencePieceProcessor
    place = tmp_path_factory.mktemp("marian")
    found = ["</s>", "<unk>", ">>de<<"]
    for side, words in (("source", SOURCE), ("target", TARGET)):
        trainer.train(
            sentence_iterator=iter(corpus(words, 3)), model_prefix=str(place / side), vocab_size=40, minloglevel=9
        )
        (place / f"{side}.model").rename(place / f"{side}.spm")
        model = reader(model_file=str(place / f"{side}.spm"))
        found += [piece for piece in map(model.id_to_piece, range(len(model))) if piece not in ("<s>", *found)]
    (place / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate([*found, "<pad>"])}))
    (place / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512}))
    return place


@pytest.fixture(scope="module")
def oracle(folder: Path) -> transformers.MarianTokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like sacremoses
        found = transformers.MarianTokenizer.from_pretrained(folder)
    found.punc_normalizer = lambda text: text
    return found


TEXTS = [
    "the small cat",
    "  a  warm   mat ",
    "",
    "looked at ä house",
    "ß ß the",
    "cats' houses!",
    "fell überall 12 €€ the",
]


def test_sources_are_read_as_there(folder: Path, oracle: transformers.MarianTokenizer) -> None:
    ours = Tokenizer.load(folder)
    for text in (*TEXTS, *corpus(SOURCE, 5)[:50], ">>de<< the cat"):
        assert ours.encode(text, special=True).ids == oracle(text)["input_ids"], text
    assert (len(ours), ours.max_length) == (len(oracle), 512)
    assert {role: ours.id(role) for role in ours.roles} == {"pad": len(ours) - 1, "unk": 1, "eos": 0}


def test_targets_are_read_and_told_as_there(folder: Path, oracle: transformers.MarianTokenizer) -> None:
    ours, other = Tokenizer.load(folder), marian(folder, "target")
    for text in corpus(TARGET, 5)[:50]:
        ids = oracle(text_target=text)["input_ids"]
        assert other.encode(text).ids == ids
        assert ours.decode(ids) == other.decode(ids) == oracle.decode(ids, skip_special_tokens=True) == text


def test_letters_that_only_the_other_side_knows(folder: Path, oracle: transformers.MarianTokenizer) -> None:
    """One by one as there; a run of them is unknown there, and cut here."""
    ours = Tokenizer.load(folder)
    run = ours.encode("Hä").ids
    assert oracle("Hä")["input_ids"][1:-1] == [oracle.unk_token_id]
    assert [ours.token(id) for id in run] == ["▁", "H", "ä"]
    assert ours.decode(run) == "Hä"


def test_it_is_written_in_one_file(folder: Path, oracle: transformers.MarianTokenizer, tmp_path: Path) -> None:
    Tokenizer.load(folder).save(tmp_path)
    again, there = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS, *corpus(SOURCE, 7)[:20]):
        ids = oracle(text)["input_ids"]
        assert again.encode(text, special=True).ids == there(text)["input_ids"] == ids
    ids = oracle(text_target="die Katze saß")["input_ids"]
    assert again.decode(ids) == there.decode(ids, skip_special_tokens=True) == "die Katze saß"


def test_answers_are_cut_by_pieces_of_their_own(
    folder: Path, oracle: transformers.MarianTokenizer, tmp_path: Path
) -> None:
    """As there with `text_target`: what a model is taught, also one of ours; dialogues have no answers."""
    ours = Tokenizer.load(folder)
    ours.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    answers = corpus(TARGET, 5)[:30]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in zip(corpus(SOURCE, 5)[:30], answers, strict=True)))
    wanted = [(oracle(a)["input_ids"], oracle(text_target=b)["input_ids"]) for a, b in _rows(pairs)]
    for tokenizer, workers in ((ours, 1), (again, 1), (again.changed(max_length=9), 2)):
        assert [tokenizer.answers.encode(text, special=True).ids for text in answers] == [b for _, b in wanted]
        store = build_pairs([pairs], ("en", "de"), tokenizer, tmp_path / f"cache-{workers}", workers=workers)
        ends = store.sentences
        found = [store.tokens[a:b].tolist() for a, b in pairwise(ends.tolist())]
        assert found == [ids[:-1] for pair in wanted for ids in pair]
    one_side = ours.changed(answers=None)
    assert ours.fingerprint() == again.fingerprint() != one_side.fingerprint()
    assert one_side.answers is one_side
    said = tmp_path / "said.jsonl"
    said.write_text(json.dumps({"turns": answers[:3]}))
    turns = [build_store([said], one, tmp_path / f"turns-{n}", field="turns", turns=True) for n, one in
             enumerate((ours, one_side))]  # fmt: skip
    assert turns[0].tokens.tolist() == turns[1].tokens.tolist()


def _rows(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text().splitlines()]


def test_beside_a_model(folder: Path, tmp_path: Path) -> None:
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 61, "pad_token_id": 60}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "decoder_start_token_id": 60}
    model = transformers.MarianMTModel(transformers.MarianConfig(**sizes, **heads))
    model.save_pretrained(tmp_path)
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    parts = load_parts(tmp_path)
    assert parts.tokenizer is not None
    assert parts.speech is not None
    assert (parts.speech.start, parts.speech.end) == ((parts.tokenizer.id("pad"),), (parts.tokenizer.id("eos"),))


def test_what_is_wrong_is_told(folder: Path, tmp_path: Path) -> None:
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "target_vocab.json").write_text("{}")
    with pytest.raises(SesameError, match="has a vocabulary for each side"):
        Tokenizer.load(tmp_path)
    (tmp_path / "target_vocab.json").unlink()
    for vocab, said in (({"</s>": 0, "<unk>": 2}, "does not number"), ({"a": 0, "b": 1}, "lacks </s>")):
        (tmp_path / "vocab.json").write_text(json.dumps(vocab))
        with pytest.raises(SesameError, match=said):
            Tokenizer.load(tmp_path)
