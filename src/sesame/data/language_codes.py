"""Whether a line names languages: the heading "en, de" has no column of a known name, and is no pair of texts either."""

from collections.abc import Sequence

from sesame.data.tables import fold, listed

# ISO 639-1
CODES = frozenset(
    listed("""aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da
    de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie
    ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh
    mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw
    sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur
    uz ve vi vo wa wo xh yi yo za zh zu""")
)


def are_languages(cells: Sequence[str]) -> bool:
    """Two cells, each another code, perhaps with a country: en, pt-BR. "It is" and "es ist" are texts: codes are one word."""
    words = len(cells) == 2 and all(len(cell.split()) == 1 for cell in cells)
    return words and fold(cells[0]) != fold(cells[1]) and all(fold(c).split("_")[0] in CODES for c in cells)
