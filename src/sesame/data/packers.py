"""The packer of each kind of packing."""

from typing import Any

from sesame.data.dialogue_pack import DialoguePacker
from sesame.data.neighbor_pack import NeighborPacker
from sesame.data.pack import Kind, Packer, Specials
from sesame.data.pair_pack import OrderPacker, PairPacker
from sesame.data.parts import Part

_OWN = {"pairs": PairPacker, "orders": OrderPacker, "dialogues": DialoguePacker, "neighbors": NeighborPacker}


def packer_of(part: Part, kind: Kind, length: int, specials: Specials, **rest: Any) -> Packer:
    """`rest` is as for `Packer`. Translations also want to know their languages: `TranslationPacker`."""
    return _OWN[kind](part, length, specials, **rest) if kind in _OWN else Packer(part, kind, length, specials, **rest)
