"""What generation_config.json forces and bans: a folder speaks here as it does in transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import Speech, answers, not_followed, speaker
from sesame.errors import SesameError
from sesame.generate import Settings
from tests.generate.strangers import END, PAD, START, VOCAB, stranger

TEXTS = ["t9 t4 t7 t20", "t5", "t28 t3 t3 t17 t11 t6"]
MOST = 8
TOLD: dict[str, dict[str, Any]] = {
    "several ends and a forced one": {"eos_token_id": [END, 12], "forced_eos_token_id": END},
    "a forced end that ends nothing": {"eos_token_id": 28, "forced_eos_token_id": 9},
    "phrases": {"bad_words_ids": [[one, two] for one in range(2, VOCAB) for two in range(3, VOCAB) if (one + two) % 3]},
    "suppressed": {"suppress_tokens": [12, 9, 3, 27, END]},
}


def saved(folder: Path, family: str, told: dict[str, Any], template: str = "") -> Any:
    """A model with a tokenizer of words, and what its files say."""
    model = stranger(family, 3)
    head = model.lm_head
    model.lm_head = torch.nn.Linear(16, VOCAB, bias=False, dtype=torch.float64)  # as their class has it
    model.lm_head.weight = head.weight
    if family == "bart":  # halves with one table, as all published models have them
        model.model.encoder.embed_tokens.weight.data = model.model.decoder.embed_tokens.weight.data.clone()
    model.save_pretrained(folder)
    said = {"pad_token_id": PAD, "eos_token_id": END} | ({} if family == "gpt2" else {"decoder_start_token_id": START})
    (folder / "generation_config.json").write_text(json.dumps(said | told))
    names = {"<pad>": PAD, "</s>": END, "<s>": START} | {f"t{number}": number for number in range(3, VOCAB)}
    backend = Backend(models.WordLevel(names, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = template or ("$A" if family == "gpt2" else "$A </s>")
    backend.post_processor = processors.TemplateProcessing(template, special_tokens=[("<s>", START), ("</s>", END)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", bos_token="<s>"
    ).save_pretrained(folder)
    auto = transformers.AutoModelForCausalLM if family == "gpt2" else transformers.AutoModelForSeq2SeqLM
    return auto.from_pretrained(folder, dtype=torch.float64).eval()


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("case", TOLD)
@pytest.mark.parametrize("family", ["bart", "gpt2"])
def test_answers(family: str, case: str, beams: int, tmp_path: Path) -> None:
    model = saved(tmp_path / "theirs", family, TOLD[case])
    parts = load_parts(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    assert load_parts(tmp_path / "ours").speech == parts.speech
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    early = "present" if beams > 1 else "provable"
    parts.backbone.eval()
    here = answers(parts, TEXTS, {"beams": beams, "most": MOST, "early": early}, speaks=speaker(parts))
    for text, said in zip(TEXTS, here, strict=True):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        wishes: dict[str, Any] = {"num_beams": beams, "max_new_tokens": MOST, "attention_mask": torch.ones_like(ids)}
        new = model.generate(ids, **wishes)[0, 1 if family == "bart" else ids.shape[1] :].tolist()
        ended = parts.speech is not None and new[-1] in parts.speech.end
        assert (said[0].ids, said[0].ended) == (new[:-1] if ended else new, ended)


@pytest.mark.parametrize("template", ["<s> $A", "<s> $A </s>", "$A </s>"])
def test_what_the_template_puts_before_a_prompt(template: str, tmp_path: Path) -> None:
    """It is read before a prompt, here and there; what ends a text is not."""
    model = saved(tmp_path / "theirs", "gpt2", {}, template)
    parts = load_parts(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    again = load_parts(tmp_path / "ours")
    assert again.tokenizer is not None
    parts.backbone.eval()
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        assert [*ids, *([END] if template.endswith("</s>") else [])] == theirs(text)["input_ids"]
        assert again.tokenizer.encode(text, special=True).ids == theirs(text)["input_ids"]
        [[said]] = answers(parts, [text], {"most": MOST}, speaks=speaker(parts))
        new = model.generate(torch.tensor([ids]), max_new_tokens=MOST)[0, len(ids) :].tolist()
        assert said.ids == (new[:-1] if said.ended else new)


def test_what_is_not_followed_is_told() -> None:
    speech = Speech(more={"num_beams": 4, "length_penalty": 2.0, "repetition_penalty": 1.3, "min_length": 0})
    assert not_followed(speech, Settings(beams=4)) == ["length_penalty = 2.0", "repetition_penalty = 1.3"]
    assert not_followed(speech, Settings(beams=4, alpha=2.0)) == ["repetition_penalty = 1.3"]
    assert not_followed(Speech(), Settings(beams=2)) == []


def test_a_suppressed_token_that_is_no_number(tmp_path: Path) -> None:
    saved(tmp_path, "bart", {})
    (tmp_path / "generation_config.json").write_text('{"suppress_tokens": ["a"]}')
    with pytest.raises(SesameError, match=r"generation_config\.json: a token is no number"):
        load_parts(tmp_path)
