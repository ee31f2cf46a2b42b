"""What a pre-training is made of: tokenizer, token stores, model.

Whatever stands whole in the run's folder or in the cache is taken, the rest is made and kept there. Of many ranks the first
makes things while the others wait; then they find them.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count, takewhile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sesame import chance
from sesame.backbones import BACKBONES, Backbone, build_backbone
from sesame.checkpoint.folder import Parts, check_fit, load_parts
from sesame.checkpoint.run import Run
from sesame.checkpoint.speech import Speech
from sesame.config import build as build_config
from sesame.data import dialogues
from sesame.data.build import build_store
from sesame.data.cache import cache_folder
from sesame.data.counts import count_table
from sesame.data.pack import Part, hold_out
from sesame.data.readers import corpus_files
from sesame.data.vector_files import read_vectors
from sesame.data.vector_table import check_width, token_vectors
from sesame.errors import SesameError
from sesame.files import whole_file, whole_folder
from sesame.nn.init import Undrawn
from sesame.objectives import MaskedLMHead, Vocab
from sesame.objectives import build as build_objectives
from sesame.objectives.base import Together
from sesame.objectives.clm import CausalLM
from sesame.objectives.decoder_head import DecoderHead
from sesame.objectives.denoise import stop_ids
from sesame.objectives.mlm import MaskedLM
from sesame.objectives.model import Model
from sesame.objectives.plm import PermutationLM, TableHead
from sesame.objectives.seq2seq import Seq2Seq
from sesame.pretraining.beside import load_beside
from sesame.pretraining.extension import extend
from sesame.pretraining.mixture import Mixture, gather_mixture, mixed_tokenizer, parts_of
from sesame.pretraining.tokenizer_cache import cached_tokenizer
from sesame.pretraining.wishes import Wishes, languages_of
from sesame.progress import say
from sesame.recipe import Recipe
from sesame.text import Tokenizer
from sesame.text.template import SENTINEL, framed, with_cls, with_sentinels

COUNTED = 2.5  # vectors from counts are so much longer than random ones; docs/log.md


@dataclass
class Ingredients:
    tokenizer: Tokenizer
    train: Part | Mixture
    valid: Part | Mixture
    started: Parts | None  # the model that training goes on from
    languages: tuple[str, ...] = ()

    @property
    def speech(self) -> Speech | None:
        """How answers of the start model begin and end."""
        return None if self.started is None else self.started.speech

    def model(self, wishes: Wishes, recipe: Recipe, run: Run, fresh: bool) -> tuple[Model, dict[str, nn.Module]]:
        """The model at the start, and the heads of the start model that no objective trains; not `fresh`: to be filled."""
        torch.manual_seed(chance.key(wishes.seed) >> 1)
        backbone = self._backbone(wishes, recipe)
        backbone.spell(self.tokenizer)
        if self.started is None and recipe.table == "counts" and fresh:
            self._count(backbone, run.folder / "table.npy")
        if wishes.vectors is not None and fresh:
            self._place(backbone, wishes.vectors)
        if wishes.freeze_vectors:
            backbone.token_table().requires_grad_(False)
        objective = _objectives(recipe, backbone, self.tokenizer, self.speech)
        untouched = {} if self.started is None else _take_heads(objective, self.started)
        if wishes.start and fresh:
            load_beside(objective, wishes.start)
        _check_agreement(recipe, backbone)
        return Model(backbone, objective), untouched

    def _backbone(self, wishes: Wishes, recipe: Recipe) -> Backbone:
        if self.started is None:
            try:
                return _new_backbone(recipe, self.tokenizer, self.languages)
            except RuntimeError as error:
                if "memory" not in str(error):  # the CPU's allocator has no error of its own
                    raise
                raise SesameError(
                    "a model of this size does not fit into this machine's memory; choose a smaller --size, or lower what "
                    "makes it large: backbone.width, depth, inner or max_length"
                ) from None
        backbone = self.started.backbone
        name, stage = max(recipe.stages.items(), key=lambda item: item[1].length)
        most = backbone.longest if backbone.answers else getattr(backbone.config, "max_length", None)
        if most is not None and stage.length > most:  # T5 and recurrent models have no end
            raise SesameError(
                f"{wishes.start}: takes {most} tokens; a stage has {stage.length}, so set stages.{name}.length={most}"
            )
        return backbone

    @torch.no_grad()
    def _place(self, backbone: Backbone, file: str) -> None:
        """Start the token table from static vectors; tokens without one keep their random start."""
        rows = backbone.token_table()
        ids, found = token_vectors(self.tokenizer, read_vectors(file), rows.shape[1])
        rows[ids] = torch.from_numpy(found).to(rows)
        say(f"{len(ids):,} of {len(self.tokenizer):,} tokens start from their vectors in {file}")

    @torch.no_grad()
    def _count(self, backbone: Backbone, kept: Path) -> None:
        """Start the token table from counts; tokens that the text does not hold keep their random start."""
        if isinstance(self.train, Mixture):
            say("the token table starts at random: neighbours are counted in one language only")
            return
        rows = backbone.token_table()
        if kept.is_file():
            found = np.load(kept)
        else:
            began = time.monotonic()
            found = count_table(self.train, backbone.vocab, rows.shape[1], COUNTED * backbone.config.init)
            with whole_file(kept) as handle:
                np.save(handle, found)
            say(f"the token table starts from counts of neighbours, {time.monotonic() - began:.0f} s")
        table = torch.from_numpy(found)
        seen = table.abs().sum(1) > 0
        rows[: len(table)][seen] = table[seen]


def _new_backbone(recipe: Recipe, tokenizer: Tokenizer, languages: tuple[str, ...]) -> Backbone:
    settings = {key: value for key, value in recipe.backbone.items() if key != "kind"}
    if recipe.languages.embedded:
        settings["languages"] = languages
    _, kind = BACKBONES[recipe.backbone.get("kind", "encoder")]
    return build_backbone(build_config(kind, {**settings, "vocab": len(tokenizer)}, "backbone"))


def _check_vectors(file: str, recipe: Recipe, tokenizer: Tokenizer, languages: tuple[str, ...]) -> None:
    """Vectors that a new model has no room for are told of now, by the first of them, and not after hours of encoding."""
    with torch.device("meta"):
        width = _new_backbone(recipe, tokenizer, languages).token_table().shape[1]
    check_width(read_vectors(file, most=1), width)


def _objectives(recipe: Recipe, backbone: Backbone, tokenizer: Tokenizer, speech: Speech | None) -> Together:
    vocab = vocab_of(tokenizer)
    if speech is not None and speech.start:
        vocab = replace(vocab, start=speech.start[0])
    return build_objectives(recipe.objectives, backbone, vocab)


def _check_agreement(recipe: Recipe, backbone: Backbone) -> None:
    """R-Drop's two passes differ by dropout, be it the model's or the stage's; without it they are work for nothing."""
    if not getattr(recipe.objectives.get("seq2seq"), "agreement", 0):
        return
    if getattr(backbone.config, "attention", "") == "hard":
        raise SesameError(
            "objectives.seq2seq.agreement does not go with backbone.attention=hard, whose draws would not learn of it; "
            "take attention=global, or leave agreement out"
        )
    built = any(getattr(backbone.config, name, 0) for name in ("dropout", "attention_dropout", "inner_dropout"))
    for name, stage in recipe.stages.items():
        if stage.dropout == 0 or (stage.dropout < 0 and not built):
            raise SesameError(
                "objectives.seq2seq.agreement needs dropout, by which two passes differ; "
                f"set stages.{name}.dropout=0.1 or leave it out"
            )


def vocab_of(tokenizer: Tokenizer) -> Vocab:
    """What corruption must know of a tokenizer."""
    pieces = tokenizer.tokens()
    number = {piece: id for id, piece in enumerate(pieces)}
    named = takewhile(number.__contains__, map(SENTINEL.format, count()))
    front = int(tokenizer.has("cls") and tokenizer.encode(tokenizer.sample, special=True).ids[0] == tokenizer.id("cls"))
    sentinels = tuple(number[piece] for piece in named)
    shown = [tokenizer.shown(id) if piece else "" for id, piece in enumerate(pieces)]
    return Vocab(len(tokenizer), tokenizer.ids(), front, sentinels, tuple(stop_ids(shown)))


def _say_shared(files: list[Path], held: list[Path]) -> None:
    """A held-out file that is learnt from, as where --text is the folder that it lies in."""
    learnt = {file.resolve() for file in files}
    if shared := [file for file in held if file.resolve() in learnt]:
        more = f" and {len(shared) - 1:,} more files of --valid" if len(shared) > 1 else ""
        say(f"warning: {shared[0]}{more}: also in --text; losses on it are too good, so leave it out of one of the two")


def _say_single(recipe: Recipe, parts: Sequence[Part]) -> None:
    """Behind the only sentence of a document there is no next one: its pairs are all of the other kind."""
    sizes = np.concatenate([np.diff(part.store.documents) for part in parts])
    share = float((sizes == 1).mean()) if len(sizes) > 1 else 0.0
    if "nsp" in recipe.objectives and share > 0.5:
        say(
            f"warning: {100 * share:.0f} % of the documents are a single sentence, which has no next one to predict; put "
            "blank lines only between documents, or set objectives.nsp=false"
        )


def gather_ingredients(wishes: Wishes, recipe: Recipe, run: Run, files: list[Path]) -> Ingredients:
    """Tokenizer and text; the run is bound to what they hold."""
    turns = any(stage.packing == "dialogues" for stage in recipe.stages.values())
    if turns and wishes.field == "text":  # nobody named another
        wishes = replace(wishes, field=dialogues.FIELD)
    started = load_parts(wishes.start) if wishes.start else None
    if started is not None:
        _check_settings(wishes, recipe, started)
    kept = run.folder / "tokenizer"
    tokenizer = _tokenizer(wishes, recipe, started, files, kept)
    if started is not None:  # an objective that is for another kind of model says so now, not after hours of encoding
        with Undrawn():
            _objectives(recipe, started.backbone, tokenizer, started.speech)
    if started is None:  # a tokenizer that was made for another kind of model keeps its pieces
        tokenizer = _framed(tokenizer, recipe)
    if wishes.vectors is not None:
        _check_vectors(wishes.vectors, recipe, tokenizer, languages_of(wishes))
    if started is not None and wishes.extend:
        started, tokenizer = extend(started, tokenizer, files, wishes.field, wishes.extend, kept)
    spoken = languages_of(wishes)
    if spoken:
        spoken = _numbered(spoken, started, wishes)
        mixed = gather_mixture(wishes, recipe, tokenizer, spoken)
        _say_single(recipe, parts_of(mixed[0]))
        run.bind([name for mixture in mixed for name in mixture.stores()])
        return Ingredients(tokenizer, *mixed, started, spoken)
    cache = cache_folder()
    build = partial(
        build_store, tokenizer=tokenizer, cache=cache, field=wishes.field, turns=turns, verbatim=recipe.verbatim
    )
    store = build(files)
    if wishes.valid:
        _say_shared(files, corpus_files(wishes.valid))
        held = build(corpus_files(wishes.valid))
        train, valid = hold_out(store, 0, 0.0)[0], hold_out(held, 0, 0.0)[0]
    else:
        train, valid = hold_out(store, wishes.seed)
    _say_single(recipe, [train])
    run.bind([part.store.path.name for part in (train, valid)])
    return Ingredients(tokenizer, train, valid, started)


def _tokenizer(wishes: Wishes, recipe: Recipe, started: Parts | None, files: list[Path], kept: Path) -> Tokenizer:
    """The user's, the start model's, the one that this run made before, or a new one."""
    if wishes.tokenizer:
        tokenizer = Tokenizer.load(wishes.tokenizer)
        if started is not None:
            check_fit(tokenizer, started.backbone.vocab, wishes.tokenizer)
            _check_pieces(tokenizer, started, wishes)
        return tokenizer
    if started is not None:
        if started.tokenizer is None:
            raise SesameError(f"{wishes.start}: has no tokenizer; name one with --tokenizer")
        return started.tokenizer
    if (kept / "tokenizer.json").is_file():
        return Tokenizer.load(kept)
    if languages_of(wishes):
        tokenizer = mixed_tokenizer(wishes, recipe)
    else:
        tokenizer = cached_tokenizer(files, wishes.field, recipe.tokenizer)
    with whole_folder(kept) as folder:
        tokenizer.save(folder)
    return tokenizer


def _check_settings(wishes: Wishes, recipe: Recipe, started: Parts) -> None:
    """Settings of a backbone or a tokenizer change nothing of a model that exists; a decoder goes on as a decoder."""
    if "mlm" in recipe.objectives and "lm" in started.heads:
        raise SesameError(
            f"{wishes.start}: tells next tokens, and would forget it by learning masks; take recipe gpt or gpt2, or set "
            "objectives.mlm=false, objectives.clm.head=lm"
        )
    if recipe.backbone.get("backward") and not getattr(started.backbone.config, "backward", False):
        raise SesameError(
            f"{wishes.start}: does not read from the end, as recipe {recipe.name} does; start from one that does, or "
            "take a recipe that reads forward, such as adapt-lstm"
        )
    turned = None if started.speech is None else started.speech.reverse
    for name, stage in recipe.stages.items():
        if stage.packing == "answers" and turned is not None and stage.reverse != turned:
            way = ("their end", "their beginning") if turned else ("their beginning", "their end")
            raise SesameError(
                f"{wishes.start}: has learnt to read sources from {way[0]}, and recipe {recipe.name} reads from {way[1]}; "
                f"set stages.{name}.reverse={str(turned).lower()}"
            )
    built = json.loads(json.dumps(asdict(started.backbone.config)))  # lists are lists, as in a recipe
    for setting in wishes.settings:
        name = setting.partition("=")[0].removeprefix("backbone.")
        other = name != "kind" and json.loads(json.dumps(recipe.backbone.get(name))) != built.get(name)
        if setting.startswith("backbone.") and other:
            raise SesameError(
                f"--set {setting}: {wishes.start} stays as it was built; leave it out"
                + (", or set stages.NAME.dropout" if "dropout" in name else "")
            )
        if setting.startswith("tokenizer.") and not setting.startswith("tokenizer.template"):
            say(f"--set {setting} changes nothing: {wishes.start} has a tokenizer of its own")


def _check_pieces(tokenizer: Tokenizer, started: Parts, wishes: Wishes) -> None:
    """The rows of the start model's table are its own tokenizer's pieces."""
    known, given = [] if started.tokenizer is None else started.tokenizer.tokens(), tokenizer.tokens()
    other = next((id for id, (a, b) in enumerate(zip(given, known, strict=False)) if a != b), None)
    if other is not None:
        raise SesameError(
            f"--tokenizer {wishes.tokenizer}: piece {other} is {given[other]!r}, in {wishes.start} it is {known[other]!r}; "
            "leave --tokenizer out, the model has one of its own"
        )


def _framed(tokenizer: Tokenizer, recipe: Recipe) -> Tokenizer:
    """With the tokens around a text that the recipe's model reads."""
    tokenizer = tokenizer.for_a_new_model()
    if "span" in recipe.objectives:
        tokenizer = with_sentinels(tokenizer)
    if recipe.tokenizer.template == "end":
        return framed(tokenizer, "end")
    return with_cls(tokenizer, BACKBONES[recipe.backbone.get("kind", "encoder")][0].cls_last)


def _numbered(spoken: tuple[str, ...], started: Parts | None, wishes: Wishes) -> tuple[str, ...]:
    """The languages in the order of their embeddings: the start model's, if it has any."""
    known = () if started is None else getattr(started.backbone.config, "languages", ())
    for language in spoken if known else ():
        if language not in known:
            raise SesameError(f"{wishes.start}: does not know the language {language!r}; it knows {', '.join(known)}")
    return known or spoken


def _telling(head: nn.Module) -> MaskedLMHead | DecoderHead:
    assert isinstance(head, MaskedLMHead | DecoderHead)
    return head


def _take_heads(objective: Together, started: Parts) -> dict[str, nn.Module]:
    """Put the start model's heads into the objectives; gives those that no objective trains: a pooler.

    Of the two that read every token, "mlm" and "rtd", one does not outlive the training of the other: each needs states of
    its own, and would answer from those of a stranger.
    """
    for part in objective.all():
        head = next((started.heads[name] for name in part.heads() if name in started.heads), None)
        if isinstance(part, MaskedLM) and isinstance(head, MaskedLMHead):
            part.head = head  # as it is: its table may be its own
        if isinstance(part, PermutationLM) and isinstance(head, TableHead):
            part.head = head
        if isinstance(part, CausalLM):  # either kind tells the next token: it goes on with the one that has learnt to
            part.head = next(
                (_telling(started.heads[name]) for name in ("lm", "mlm") if name in started.heads), part.head
            )
        if isinstance(part, Seq2Seq) and isinstance(head, DecoderHead):
            part.head = head  # its scale and bias are the model's
    trained = objective.heads()
    for name, head in trained.items():
        if name in started.heads:
            head.load_state_dict(started.heads[name].state_dict())
    owned = {name for task in started.tasks.values() for name in task.heads()}
    outlived = {"mlm", "rtd"} if trained.keys() & {"mlm", "rtd"} else set()
    return {name: head for name, head in started.heads.items() if name not in {*trained, *owned, *outlived}}
