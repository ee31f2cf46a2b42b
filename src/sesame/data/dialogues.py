"""Dialogues: who says what, one dialogue a line of a .jsonl file.

    {"turns": [{"role": "user", "text": "Is the branch open?"}, {"role": "agent", "text": "Until six."}, ...]}
    {"turns": ["Is the branch open?", "Until six.", ...]}                                        two speakers in turn

`content` may stand for `text`, and another field than "turns" can be named (--field messages). In the token store a dialogue
is a document and a turn a sentence, whatever stops are in it; who speaks is kept beside, one byte a turn.

Paper: Sun et al. 2019, "ERNIE", section 3.3: a turn is a query (0) or a response (1). Common names say which; in a dialogue
with any other name the one who speaks first asks, all others answer. Turns need not alternate: QRQ, QRR, QQR.
"""

import json
from typing import Any

from sesame.errors import SesameError

FIELD = "turns"
QUERY, RESPONSE = 0, 1
_KNOWN = dict.fromkeys(
    ("user", "human", "customer", "client", "caller", "query", "question", "q"), QUERY
) | dict.fromkeys(
    ("assistant", "agent", "bot", "operator", "support", "system", "model", "gpt", "response", "answer", "a", "r"),
    RESPONSE,
)


def read_turns(turns: list[Any], place: str) -> tuple[list[str], bytes]:
    """The texts of a dialogue's turns, one line each, and their roles; turns without text are left out."""
    found = [_turn(turn, number, place) for number, turn in enumerate(turns, 1)]
    names = [name if name is not None else ("user", "agent")[number % 2] for number, (_, name) in enumerate(found)]
    if all(name in _KNOWN for name in names):
        roles = [_KNOWN[name] for name in names]
    else:
        roles = [QUERY if name == names[0] else RESPONSE for name in names]
    kept = [number for number, (text, _) in enumerate(found) if text]
    return [found[number][0] for number in kept], bytes(roles[number] for number in kept)


def _turn(turn: Any, number: int, place: str) -> tuple[str, str | None]:
    """Text and role; None: nobody says who speaks."""
    text, role = turn, None
    if isinstance(turn, dict):
        text, role = turn.get("text", turn.get("content")), turn.get("role")
    if not isinstance(text, str) or not isinstance(role, str | None):
        raise SesameError(
            f"{place}: turn {number} is {json.dumps(turn, ensure_ascii=False)[:60]}; "
            'write a text or {"role": "user", "text": "..."}'
        )
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(whole.split()), None if role is None else role.strip().lower()
