"""Invented names, numbers, addresses and times; and which values are held out from training."""

import functools
import hashlib
import json
import pathlib

# For training; with the same wordings but held-out names; and with held-out wordings too.
TRAIN, NEW_NAMES, TEST = "train", "names", "test"


def load(name):
    """Returns the lists and tables in `data/NAME.json`, in the file's order."""
    path = pathlib.Path(__file__).parent / "data" / f"{name}.json"
    return json.loads(path.read_text()).values()


# In PHRASES and SAYINGS, {} is a word and {n} a name. Words in COMMON may be misspelt, so no value contains one.
(ONSETS, VOWELS, ENDS, NAMES, CITIES, WORDS, PHRASES, SAYINGS, ABROAD, ROOMS, ENDINGS_OF_HOSTS, COMMON, DAYS,
 MONTHS) = load("values")


def digest(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def is_held_out(text):
    """Holds out one in twelve of all distinct texts. It is a property of the text, so that no run ever trains on it."""
    return digest(text) % 12 == 0


def belongs(text, split):
    """Returns whether the split may use this text."""
    return is_held_out(text) == (split != TRAIN)


@functools.cache
def parts(pool):
    """Divides a pool of phrasings into those for training and those for testing: one in eight, at least one."""
    held = [p for p in pool if digest("p:" + p) % 8 == 0] or [min(pool, key=lambda p: digest("p:" + p))]
    kept = [p for p in pool if p not in held]
    return kept or held, held


def phrasing(r, split, pool):
    """Returns a phrasing from this split. A pool of fewer than four has no held-out part."""
    if len(pool) < 4:
        return r.choice(pool)
    kept, held = parts(tuple(pool))
    return r.choice(held if split == TEST else kept)


def invented(r, split):
    """Returns a meaningless word. The two splits share no words."""
    while True:
        word = "".join(r.choice(ONSETS) + r.choice(VOWELS) for _ in range(r.randint(1, 3))) + r.choice(ENDS)
        if len(word) > 2 and word not in COMMON and belongs("w:" + word, split):
            return word


def word(r, split):
    chance = r.random()
    if chance < 0.3:
        return invented(r, split)
    if chance < 0.45:
        return invented(r, split).capitalize()
    if chance < 0.48:
        return r.choice(ABROAD)
    return r.choice(CITIES if chance < 0.6 else NAMES if chance < 0.75 else WORDS)


def words(r, split):
    """Returns the name of something: a word or two, or more with small words between them."""
    if r.random() < 0.35:
        return filled(r, split, r.choice(PHRASES))
    return " ".join(word(r, split) for _ in range(r.choice([1, 1, 1, 2])))


def filled(r, split, form):
    """Fills the gaps in a phrase."""
    def noun():
        return r.choice(WORDS) if r.random() < 0.7 else invented(r, split)

    gaps = form.count("{}")
    return form.format(*[noun() for _ in range(gaps)], n=person(r, split), c=city(r, split), h=time(r, split),
                       N=noun().capitalize())


def integer(r):
    digits = [r.randint(0, 9), r.randint(0, 99), r.randint(0, 99), r.randint(100, 999), r.randint(1000, 99999)]
    return r.choice(digits)


def decimal(r):
    halves, tenths, hundredths = r.randint(0, 99) + 0.5, r.randint(1, 999) / 10, r.randint(100, 99999) / 100
    return r.choice([halves, tenths, hundredths, -r.randint(1, 99) / 10, integer(r), integer(r)])


def city(r, split):
    if r.random() < 0.12:
        return r.choice(["New", "San", "Port", "Los", "Saint", "Rio de", "Bad"]) + " " + invented(r, split).capitalize()
    return invented(r, split).capitalize() if r.random() < 0.5 else r.choice(CITIES)


def person(r, split):
    first = invented(r, split).capitalize() if r.random() < 0.5 else r.choice(NAMES)
    return first if r.random() < 0.8 else f"{first} {invented(r, split).capitalize()}"


def host(r, split):
    return f"{invented(r, split)}.{r.choice(ENDINGS_OF_HOSTS)}"


def email(r, split):
    last = r.choice(["", f".{invented(r, split)}", f"_{r.randint(1, 99)}", f"{r.randint(1, 99)}"])
    return f"{person(r, split).split()[0].lower()}{last}@{host(r, split)}"


def url(r, split):
    path = "".join("/" + invented(r, split) for _ in range(r.choice([0, 1, 1, 2])))
    end = r.choice(["", "", ".html", f"?id={r.randint(1, 999)}", f"/{r.randint(1, 99)}"]) if path else ""
    return f"{r.choice(['https', 'https', 'http'])}://{r.choice(['', '', 'www.', 'api.'])}{host(r, split)}{path}{end}"


def time(r, _split):
    hour, minute = r.randint(0, 23), r.choice([0, 15, 30, 45, r.randint(0, 59)])
    spoken = f"{r.randint(1, 12)} {r.choice(['am', 'pm'])}"
    return r.choice([f"{hour:02}:{minute:02}", f"{hour}:{minute:02}", r.choice([spoken, spoken, "noon", "midnight"])])


def date(r, _split):
    year, month, day = r.randint(2024, 2029), r.randint(1, 12), r.randint(1, 28)
    iso = f"{year}-{month:02}-{day:02}"
    spoken = f"{day} {r.choice(MONTHS)}", f"{r.choice(MONTHS)} {day}", f"next {r.choice(DAYS[:7])}"
    return r.choice([iso, iso, r.choice(DAYS), r.choice(spoken)])


def code(r, split):
    letters = "".join(r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(r.randint(1, 3)))
    return r.choice([f"{letters}-{r.randint(1, 99999)}", f"{letters}{r.randint(1, 9999)}", str(r.randint(100, 999999)),
                     f"{invented(r, split)}_{r.randint(1, 999)}", f"{invented(r, split).upper()}{r.randint(1, 99)}"])


def room(r, split):
    return invented(r, split) if r.random() < 0.3 else r.choice(ROOMS)


def path(r, split):
    return r.choice(["/", "./", "~/", "/data/"]) + f"{invented(r, split)}.{r.choice(['txt', 'csv', 'json', 'md'])}"


def sentence(r, split):
    def one():
        return r.choice([word(r, split), r.choice(WORDS), r.choice(WORDS)]).lower()

    if r.random() < 0.5:
        return filled(r, split, r.choice(SAYINGS))
    return " ".join(one() for _ in range(r.randint(2, 6)))
