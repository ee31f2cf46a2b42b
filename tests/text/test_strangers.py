"""What the files beside a bare vocabulary ask for is done as in transformers, or refused; never passed over."""

from pathlib import Path

import pytest

from sesame.errors import SesameError
from sesame.text import Tokenizer
from tests.text.test_load import BERT_VOCAB, write_json, write_vocab


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("kind", ["BertJapaneseTokenizer", "MPNetTokenizerFast", "FunnelTokenizer"])
def test_a_vocabulary_of_other_rules_is_refused(kind: str, file: str, tmp_path: Path) -> None:
    """Japanese BERTs cut words by a dictionary: BERT's rules on their vocab.txt gave other ids without a word."""
    write_vocab(tmp_path, BERT_VOCAB)
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    write_json(tmp_path / file, {"model_type": "bert", "tokenizer_class": kind, "do_lower_case": False})
    with pytest.raises(SesameError, match=r"vocab.txt: the tokenizer of \w+ has rules of its own"):
        Tokenizer.load(tmp_path)
    write_json(tmp_path / "config.json", {"model_type": "bert", "tokenizer_class": "BertTokenizerFast"})
    write_json(tmp_path / "tokenizer_config.json", {})
    assert Tokenizer.load(tmp_path).encode("the cat").ids == [6, 7]
