"""Where the examples of a pre-training come from: packers over the text, the loader of a stage, held-out batches."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from sesame import chance
from sesame.backbones.work import Work
from sesame.data.answer_pack import AnswerPacker, Frame, bucketed
from sesame.data.batch import Batch
from sesame.data.languages import Source, mixed, source_shares
from sesame.data.loader import STAIRS, Loader, one_shape
from sesame.data.order import locate
from sesame.data.pack import NoExample, Packer, Specials
from sesame.data.packers import packer_of
from sesame.data.parts import Part
from sesame.data.translation_pack import TranslationPacker
from sesame.data.unit_files import Units, hidden_whole
from sesame.objectives.model import Model
from sesame.pretraining.mixture import Mixture, parts_of
from sesame.progress import say
from sesame.recipe import Recipe, Stage
from sesame.text import Tokenizer
from sesame.train.accounting import work_of
from sesame.train.parallel import World, share_of
from sesame.train.precision import Machine

HELD_OUT = chance.key(0x4556414C)  # the chance of held-out examples: the same in every run


@dataclass(frozen=True)
class Examples:
    recipe: Recipe
    tokenizer: Tokenizer
    train: Part | Mixture
    valid: Part | Mixture
    units: Units  # what the masks of a stage hide whole
    model: Model
    machine: Machine
    seed: int
    frame: Frame | None = None  # the tokens around sources and answers

    def packers(self, part: Part | Mixture, stage: Stage) -> list[Packer]:
        """One for each source of a mixture."""
        if stage.packing == "answers":
            assert isinstance(part, Mixture), "answers come from pairs, which are a mixture"
            return [self._answers(source, stage, quiet=part is not self.train) for source in part.sources]
        if isinstance(part, Mixture):
            return [self._of_language(source, stage) for source in part.sources]
        return [packer_of(part, stage.packing, stage.length, self._specials(stage), **self._options(part, stage))]

    def _answers(self, source: Source, stage: Stage, quiet: bool) -> AnswerPacker:
        return AnswerPacker(
            source.part,
            stage.length,
            self._specials(stage),
            fixed=self.machine.device.type == "cuda",
            reverse=stage.reverse,
            quiet=quiet,
            cut=stage.cut,
            frame=self.frame,
        )

    def _of_language(self, source: Source, stage: Stage) -> Packer:
        """Texts of one language, or translations."""
        assert stage.packing != "answers", "those have a packer of their own"
        specials, options = self._specials(stage), self._options(source.part, stage)
        if len(source.langs) == 1:
            return packer_of(source.part, stage.packing, stage.length, specials, lang=source.langs[0], **options)
        reset = self.recipe.languages.reset
        return TranslationPacker(source.part, stage.length, specials, langs=source.langs, reset=reset, **options)

    def _specials(self, stage: Stage) -> Specials:
        pad = self.tokenizer.id("pad")
        if self.frame is not None:  # pairs: the model may be a stranger, whose end token is no separator
            return Specials(None, self.frame.end[0], pad)
        cls = None if self.recipe.tokenizer.template == "end" else self.tokenizer.id("cls")
        # A separator says that a document ends. GPT is asked for it, so it must not stand where a block is merely cut.
        cut = self.recipe.continues and stage.packing == "blocks"
        return Specials(cls, self.tokenizer.id("sep"), pad, end=not cut)

    def _options(self, part: Part, stage: Stage) -> dict[str, Any]:
        """What packers of text are told beside."""
        kind = hidden_whole(stage, self.model.objective.needs_words)
        return {
            "short": stage.short,
            "words": kind not in ("", "pieces"),
            "fixed": self.machine.device.type == "cuda",
            "units": self.units.starts(part.store, kind),
        }

    def loader(self, stage: Stage, micro: int) -> Loader:
        """All examples of a stage, from one text or from a mixture of languages."""
        packers = self.packers(self.train, stage)
        basic = Loader(packers[0], stage.batch, micro, self.seed, self.model.objective.corrupt, ramp=stage.ramp)
        if self.in_tokens(stage):
            return bucketed(basic, stage.tokens, micro * stage.length)
        if not isinstance(self.train, Mixture):
            return basic
        mix = self.recipe.languages
        shares = source_shares(self.train.sources, mix.exponent, mix.translated)
        return mixed(basic, packers, shares)

    def in_tokens(self, stage: Stage) -> bool:
        """Whether a step takes so many tokens, of one source of pairs, and not so many rows."""
        return bool(stage.tokens) and len(parts_of(self.train)) == 1

    def share(self, name: str, stage: Stage, world: World) -> Loader:
        """The examples of this rank, in batches as its machine takes them."""
        share = stage.batch
        if not self.in_tokens(stage):
            share = share_of(stage.batch, world, f"stages.{name}.batch", STAIRS if stage.ramp else 1)
        micro = stage.micro or self.micro(stage)
        on_gpu = self.machine.device.type == "cuda"
        if not stage.micro and on_gpu:
            micro = next(n for n in range(min(micro, share), 0, -1) if share % n == 0)  # one shape, compiled once
        micro = int(-world.agree([-float(min(micro, share))])[0])  # the least that a rank can take
        static = max((getattr(config, "static", 0) for config in self.recipe.objectives.values()), default=0)
        loader = self.loader(stage, micro)
        fused = on_gpu and self.machine.precision != "fp32"
        unpad, anchor = one_shape(loader, stage.length) if fused and not self.model.backbone.answers else (0, 0)
        return replace(loader, static=static, unpad=unpad, anchor=anchor, rank=world.rank, ranks=world.ranks)

    def work(self, stage: Stage, loader: Loader) -> Work:
        """What is done with a row; pairs are as long as they are on average."""
        work = work_of(self.recipe.objectives, stage.length)
        if not isinstance(loader.packer, AnswerPacker):
            return work
        source, answer = loader.packer.sizes.mean(axis=0).tolist()
        return replace(work, length=max(1, round(source)), answer=answer / source)

    def micro(self, stage: Stage) -> int:
        """Sequences at a time: what stays in the cache of a CPU, what fits into the memory of a GPU."""
        if self.machine.device.type == "cpu":
            return max(1, 4096 // stage.length)
        config = self.model.backbone.config
        each = config.depth * config.width * 40 + config.vocab * 2  # bytes a token, in bf16 with the head on 15 %
        free, _ = torch.cuda.mem_get_info(self.machine.device)
        return max(1, int(free * 0.5 / each) // stage.length)

    def held_out(self, stage: Stage) -> list[Batch]:
        parts = [self.valid]
        if isinstance(self.valid, Mixture):
            parts = [Mixture((source,)) for source in self.valid.sources]
        return [batch for part in parts for batch in self._held_out_of(part, stage, len(parts))]

    def _held_out_of(self, part: Part | Mixture, stage: Stage, among: int) -> list[Batch]:
        """The examples of one source `among` so many."""
        inside = part.sources[0].part if isinstance(part, Mixture) else part
        if inside.tokens() == 0 or (stage.packing in ("pairs", "dialogues") and len(inside.documents) < 2):
            return []
        try:
            [packer] = self.packers(part, replace(stage, short=0.0))  # one measure for all: full rows
        except NoExample:
            if all(inside.store is not other.store for other in parts_of(self.train)):
                raise  # the user's own held-out text
            say("what was kept aside of the text makes no example, so nothing is held out; name a text with --valid")
            return []
        on_cpu = self.machine.device.type == "cpu"
        tokens = (self.recipe.evaluation.tokens or (16_384 if on_cpu else 524_288)) // among
        count = min(len(packer), max(1, tokens // stage.length))
        _, rows = locate(0, count, len(packer), 0)
        size = 32 if on_cpu else 256
        groups = [rows[start : start + size] for start in range(0, count, size)]
        return [self.model.objective.corrupt(packer.draw(group, chance.keys(HELD_OUT, group))) for group in groups]
