"""The nouns that scenes are made of, with the pictograms that draw them; it never opens a picture.

A noun that COCO also names carries COCO's category id; the others are numbered from 101.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """One thing a scene can hold: its name, its plural, its label id and the code points that draw it."""

    name: str
    plural: str
    category_id: int
    codes: tuple[str, ...]
    measure: str = ""  # "pair": the noun is counted as "a pair of scissors", "two pairs of scissors"

    def counted(self, count: int) -> str:
        """The noun as it follows an article or a number, e.g. `dog`, `dogs`, `pairs of skis`."""
        if self.measure:
            return f"{self.measure if count == 1 else self.measure + 's'} of {self.plural}"
        return self.name if count == 1 else self.plural


_COCO = """
1 person/people 1f9cd 1f6b6|2 bicycle 1f6b2|3 car 1f697 1f698|4 motorcycle 1f3cd-fe0f|5 airplane 2708-fe0f 1f6e9-fe0f
6 bus/buses 1f68c 1f68d|7 train 1f686 1f682|8 truck 1f69a 1f69b|9 boat 26f5 1f6a4|10 traffic light 1f6a6
13 stop sign 1f6d1|16 bird 1f426|17 cat 1f408 1f431|18 dog 1f415 1f436|19 horse 1f40e 1f434|20 sheep/sheep 1f411
21 cow 1f404 1f42e|22 elephant 1f418|23 bear 1f43b|24 zebra 1f993|25 giraffe 1f992|27 backpack 1f392
28 umbrella 2602-fe0f 2614|31 handbag 1f45c|32 tie 1f454|33 suitcase 1f9f3|34 frisbee 1f94f|35 skis/skis:pair 1f3bf
37 sports ball 26bd 1f3c0|38 kite 1fa81|41 skateboard 1f6f9|44 bottle 1f37e 1f37c
46 wine glass/wine glasses 1f377|47 cup 2615 1f964|49 knife/knives 1f52a 1f5e1-fe0f|50 spoon 1f944|51 bowl 1f963 1f35c
52 banana 1f34c|53 apple 1f34e 1f34f|54 sandwich/sandwiches 1f96a|55 orange 1f34a|56 broccoli/broccoli:head 1f966
57 carrot 1f955|58 hot dog 1f32d|59 pizza 1f355|60 donut 1f369|61 cake 1f382 1f370|62 chair 1fa91
63 couch/couches 1f6cb-fe0f|64 potted plant 1fab4|65 bed 1f6cf-fe0f|70 toilet 1f6bd|72 tv 1f4fa|73 laptop 1f4bb
74 mouse/mice 1f5b1-fe0f|76 keyboard 2328-fe0f|77 cell phone 1f4f1|84 book 1f4d5 1f4d8 1f4d6|85 clock 1f552 23f0
86 vase 1f3fa|87 scissors/scissors:pair 2702-fe0f|88 teddy bear 1f9f8|90 toothbrush/toothbrushes 1faa5
"""

_OTHERS = """
rabbit 1f407 1f430|lion 1f981|tiger 1f405 1f42f|monkey 1f412 1f435|penguin 1f427|owl 1f989|fish/fish 1f41f 1f420
frog 1f438|turtle 1f422|snake 1f40d|butterfly/butterflies 1f98b|snail 1f40c|octopus/octopuses 1f419|whale 1f433 1f40b
crab 1f980|pig 1f416 1f437|mushroom 1f344|tree 1f333 1f332|sunflower 1f33b|cactus/cactuses 1f335
strawberry/strawberries 1f353|watermelon 1f349|pineapple 1f34d|lemon 1f34b|tomato/tomatoes 1f345|hamburger 1f354
guitar 1f3b8|trumpet 1f3ba|hat 1f3a9|shoe 1f45f|dress/dresses 1f457|key 1f511|hammer 1f528|bell 1f514|balloon 1f388
camera 1f4f7|candle 1f56f-fe0f|rocket 1f680|helicopter 1f681|tractor 1f69c|house 1f3e0|tent 26fa|snowman/snowmen 26c4
robot 1f916
"""


def _parse(entry: str, category_id: int) -> Noun:
    """A noun from `name[/plural[:measure]] code...`; the plural is the name with an s where none is given."""
    words = entry.split()
    first_code = next(i for i, word in enumerate(words) if word[:2] in ("1f", "26", "27", "23"))
    name, _, rest = " ".join(words[:first_code]).partition("/")
    plural, _, measure = rest.partition(":")
    return Noun(name, plural or name + "s", category_id, tuple(words[first_code:]), measure)


def _table() -> tuple[Noun, ...]:
    nouns = []
    for entry in _COCO.strip().replace("\n", "|").split("|"):
        number, _, rest = entry.partition(" ")
        nouns.append(_parse(rest, int(number)))
    others = _OTHERS.strip().replace("\n", "|").split("|")
    return (*nouns, *(_parse(entry, 101 + i) for i, entry in enumerate(others)))


NOUNS: tuple[Noun, ...] = _table()
CATEGORIES: dict[int, str] = {noun.category_id: noun.name for noun in NOUNS}
BY_NAME: dict[str, Noun] = {noun.name: noun for noun in NOUNS}
