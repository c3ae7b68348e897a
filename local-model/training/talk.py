"""Small talk and small tricks: greetings, colours, repeating, JSON, memory, what the model is, and not knowing."""

import json
import re

import values
from values import ABROAD, CITIES, COMMON, NAMES, WORDS, belongs, integer, invented, load, phrasing, word

(ABOUT, CAN_DO, DO_NOT_KNOW, HELLOS, HELLO_ENDS, SMALL_TALK, WHO, COLOUR_OF, HEX, LISTS, ORDINALS, ASKING,
 STATING, OPENINGS, REQUESTINGS, QUESTIONINGS, TELLINGS, CLOSINGS, ECHOES, SAYINGS, BACKWARDS, NTH, TIMES,
 THING_FORMS, HEX_FORMS, MIX_FORMS, UP_TO, FROM_TO, DOWN, LISTINGS, STORIES, JSON_FORMS, JSON_KEYS, LONG_KEYS,
 KINDS_OF_KEYS, INTRODUCTIONS, NAME_QUESTIONS, TOLD, RECALLED, KEPT, NUMBERED, ROLES, ROLE_QUESTIONS, TOPICS,
 UNKNOWN, REQUESTS, SUBJECTS, ACTS) = load("talk")


MIXED = {("blue", "yellow"): "green", ("red", "yellow"): "orange", ("red", "blue"): "purple", ("red", "white"): "pink",
         ("black", "white"): "gray"}


COMMON_WORD = re.compile(r"\b(" + "|".join(COMMON) + r")\b")


def polite(r, text):
    """Adds a courtesy before or after the words, or makes them less careful."""
    if r.random() < 0.22:
        text = opened(r, text)
    if r.random() < 0.2:
        text = text.rstrip("?.!")
    if r.random() < 0.07:
        text = closed(r, text)
    if r.random() < 0.12 and not any(c.isupper() for c in text[1:]):
        text = text.lower()
    return misspelt(r, text) if r.random() < 0.06 else text


def opened(r, text):
    """Puts a courtesy in front that suits a question, a request or a statement."""
    if text.startswith(("I ", "I'")) or text[1:2].isupper():
        return text
    first, before = text.split()[0].lower(), OPENINGS
    if text.endswith("?") and first in ASKING and r.random() < 0.6:
        before = TELLINGS if first.startswith(("wh", "how")) and r.random() < 0.4 else QUESTIONINGS
    elif not text.endswith("?") and first not in ASKING + STATING and r.random() < 0.7:
        before = REQUESTINGS
    return r.choice(before) + text[0].lower() + text[1:]


def closed(r, text):
    """Appends thanks or a "please"; a question keeps its question mark."""
    if text.endswith("?"):
        return text + r.choice([" thanks!", " Thanks!", " Thank you!", " please", " Thanks in advance."])
    return text.rstrip(".!") + r.choice(CLOSINGS)


def misspelt(r, text):
    """Swaps, drops or doubles a letter in a common word, never in a value."""
    found = list(COMMON_WORD.finditer(text))
    if not found:
        return text
    chosen = r.choice(found)
    one = chosen[0]
    i = r.randrange(1, len(one) - 1)
    wrong = r.choice([one[:i] + one[i + 1] + one[i] + one[i + 2:], one[:i] + one[i + 1:], one[:i + 1] + one[i:]])
    return text[:chosen.start()] + wrong + text[chosen.end():]


def greeting(r, split):
    if r.random() < 0.4:
        while True:
            text = r.choice(HELLOS) + r.choice(HELLO_ENDS)
            if belongs("q:" + text, split):
                return text, "Hello! How can I help you?"
    texts, answer = r.choice(SMALL_TALK)
    text = phrasing(r, split, texts)
    return text.rstrip("?.!") if r.random() < 0.2 else text, answer


def who(r, split):
    texts, answer = r.choices(WHO, [2, 1])[0]
    opening = r.choice(["", "", "", "Hi! ", "Hello! ", "Hey, ", "So, ", "OK, "])
    text = opening + phrasing(r, split, texts)
    return text.rstrip("?. ") if r.random() < 0.2 else text, answer


def phrase(r, split, count):
    text = " ".join(
        r.choices([invented(r, split), str(integer(r)), r.choice(WORDS), word(r, split), r.choice(ABROAD)],
                  [42, 7, 32, 13, 6])[0] for _ in range(count))
    if r.random() < 0.2:
        text = text[0].upper() + text[1:]
    return text + r.choice("!.?") if r.random() < 0.12 else text


def echo(r, split):
    chance = r.random()
    if chance < 0.8:
        saying = fill(r, split, phrasing(r, split, SAYINGS)) if r.random() < 0.3 else None
        text = saying or phrase(r, split, r.randint(1, 7))
        return phrasing(r, split, ECHOES).format(text), text
    few = [r.choice([invented(r, split), r.choice(WORDS)]) for _ in range(r.randint(2, 4))]
    if chance < 0.86:
        glue = r.choice([" ", ", "])
        return phrasing(r, split, BACKWARDS).format(glue.join(few)), glue.join(few[::-1])
    if chance < 0.93:
        place = r.randrange(len(few))
        name = "last" if place == len(few) - 1 and r.random() < 0.5 else ORDINALS[place]
        return phrasing(r, split, NTH).format(name, " ".join(few)), few[place]
    text, count = phrase(r, split, r.randint(1, 3)), r.randint(2, 4)
    return phrasing(r, split, TIMES).format(text, count), ", ".join([text] * count)


def colour(r, split):
    chance = r.random()
    if chance < 0.5:
        thing, its = r.choice(list(COLOUR_OF.items()))
        text = phrasing(r, split, THING_FORMS).format(r.choice(["color", "colour"]), thing)
        return polite(r, text), f"{thing[0].upper() + thing[1:]} is {its}."
    if chance < 0.75:
        name, digits = r.choice(list(HEX.items()))
        return polite(r, phrasing(r, split, HEX_FORMS).format(name)), f"{name.capitalize()} is {digits}."
    (one, other), made = r.choice(list(MIXED.items()))
    if r.random() < 0.5:
        one, other = other, one
    return polite(r, phrasing(r, split, MIX_FORMS).format(one, other)), f"{one.capitalize()} and {other} make {made}."


def counting(r, split):
    """Counts up or down, or lists things. Phrasings are held out and, with them, some ranges, but no answers."""
    chance = r.random()
    if chance < 0.25:
        high = r.choice([r.randint(2, 10), r.randint(2, 21)])
        return phrasing(r, split, UP_TO).format(high), numbers(range(1, high + 1))
    if chance < 0.55:
        low, high = limits(r, split)
        return phrasing(r, split, FROM_TO).format(low, high), numbers(range(low, high + 1))
    if chance < 0.75:
        high = r.randint(2, 20)
        return phrasing(r, split, DOWN).format(high), numbers(range(high, 0, -1))
    number, (kind, items) = r.randint(2, 7), r.choice(list(LISTS.items()))
    answer = "\n".join(f"{i + 1}. {item}" for i, item in enumerate(items[:number]))
    spoken = ["two", "three", "four", "five", "six", "seven"][number - 2] if r.random() < 0.3 else number
    return phrasing(r, split, LISTINGS).format(spoken, kind), answer


def limits(r, split):
    """Returns two numbers to count between. One in twelve of the pairs that begin above 1 is only for testing."""
    while True:
        low = r.choice([1, r.randint(0, 60), r.randint(0, 60)])
        high = low + r.randint(1, 20)
        if low <= 1 or belongs(f"n:{low} {high}", split):
            return low, high


def numbers(counted):
    return ", ".join(map(str, counted))


def story(r, split):
    name, animal = values.person(r, split), r.choice(["cat", "dog", "robot", "bird", "fox", "dragon"])
    form = phrasing(r, split, STORIES)
    if "{}" not in form:
        name, animal = "Ada", "robot"
    return form.format(name, animal), (
        f"Once upon a time, {name} met a {animal}. The {animal} was lost and sad. {name} gave the {animal} some food "
        f"and a warm bed. In the morning they walked home together. From that day on, {name} and the {animal} were "
        "best friends. The end.")


def as_json(r, split):
    fields, surname = {}, invented(r, split).capitalize()
    person = f"{values.person(r, split)} {surname}"
    own = [invented(r, split), invented(r, split), f"{invented(r, split)}_{invented(r, split)}"]
    for key in r.sample(JSON_KEYS + r.sample(LONG_KEYS, 5) + own, r.choice([1, 2, 2, 3, 3, 4])):
        fields[key] = field(r, split, key, person)
    glue, pair = r.choice([(" and ", "{} {}"), (" and ", "{} {}"), (", ", "{} {}"), (", ", "{} {}"), (", ", "{}: {}"),
                           (", ", "{} is {}"), (" and ", "{} = {}"), (", ", "{}={}"), ("; ", "{}: {}")])
    said = glue.join(pair.format(k, v if isinstance(v, str) else json.dumps(v)) for k, v in fields.items())
    return phrasing(r, split, JSON_FORMS).format(said), json.dumps(fields, ensure_ascii=False)


def field(r, split, key, person):
    """Returns a value that suits the key. Name and address belong to the same person."""
    parts = key.split("_")
    kind = KINDS_OF_KEYS.get(parts[0] if parts[0] in ("is", "has") else parts[-1])
    if key in ("first_name", "last_name", "user", "user_name", "team_name"):
        return person.split()[key == "last_name"] if r.random() < 0.7 else word(r, split)
    if kind == "name":
        return person if r.random() < 0.6 else person.split()[0]
    if kind == "email" and r.random() < 0.6:
        host = values.host(r, split) if r.random() < 0.4 else f"{r.choice(['mail', invented(r, split)])}.example"
        return f"{person.lower().replace(' ', '.')}@{host}"
    if kind == "code":
        code = values.code(r, split) if r.random() < 0.6 else str(integer(r))
        return int(code) if code.isdigit() else code
    if kind == "truth":
        return r.random() < 0.5
    makers = {"email": values.email, "url": values.url, "date": values.date, "time": values.time}
    if kind in makers:
        return makers[kind](r, split)
    if kind in ("integer", "decimal"):
        return integer(r) if kind == "integer" else values.decimal(r)
    return integer(r) if r.random() < 0.2 else values.words(r, split)


KEPT_SPECIALLY = {
    "e-mail": values.email, "contact": values.email, "website": values.url, "deadline": values.date,
    "birthday": values.date, "delivery date": values.date, "appointment": values.time, "meeting time": values.time,
    "departure time": values.time, "city": values.city, "home town": values.city, "best friend": values.person,
    **dict.fromkeys(["order number", "ticket number", "flight number", "customer number", "invoice number",
                     "locker code"], values.code)}


def memory(r, split, between):
    """Makes a dialogue whose last answer is in an earlier message. `between` makes a turn to put in between."""
    chance, name = r.random(), values.person(r, split)
    if chance < 0.25:
        role, asked = r.choice(ROLES).format(name), phrasing(r, split, ROLE_QUESTIONS)
        return [("system", role), ("user", asked), ("assistant", f"I am {name}.")]
    middle = between(r, split) if r.random() < 0.5 else []
    if chance < 0.6:
        return [("user", phrasing(r, split, INTRODUCTIONS).format(name)), ("assistant", f"Nice to meet you, {name}!"),
                *middle, ("user", phrasing(r, split, NAME_QUESTIONS)), ("assistant", f"Your name is {name}.")]
    thing = r.choice(KEPT)
    if thing in KEPT_SPECIALLY:
        kept = KEPT_SPECIALLY[thing](r, split)
    elif thing in NUMBERED:
        kept = str(integer(r))
    else:
        kept = word(r, split) if r.random() < 0.7 else str(integer(r))
    return [("user", phrasing(r, split, TOLD).format(thing, kept)), ("assistant", f"OK, the {thing} is {kept}."),
            *middle, ("user", phrasing(r, split, RECALLED).format(thing)), ("assistant", f"The {thing} is {kept}.")]


def fill(r, split, form):
    def topic():
        return invented(r, split) if r.random() < 0.25 else phrasing(r, split, TOPICS)

    return form.format(
        c=values.city(r, split), c2=r.choice(CITIES), w=r.choice([invented(r, split), r.choice(WORDS)]),
        w2=r.choice(WORDS), n=r.choice(NAMES), n2=r.choice(NAMES), y=r.randint(1800, 2025), t=topic(), t2=topic(),
        a=integer(r),
        b=integer(r), e=values.email(r, split), h=values.time(r, split), l=values.url(r, split))


def unknown(r, split):
    """Asks for something that a model this small cannot know, so that it says so."""
    if r.random() < 0.15:
        return long_unknown(r, split), DO_NOT_KNOW
    return polite(r, fill(r, split, phrasing(r, split, UNKNOWN))), DO_NOT_KNOW


def long_unknown(r, split):
    """Makes a long prompt about something else: a text or code, with a request before or after it."""
    line = prose if r.random() < 0.7 else source_line
    text = r.choice([" ", "\n"] if line is prose else ["\n"]).join(line(r, split) for _ in range(r.randint(2, 12)))
    request = phrasing(r, split, REQUESTS)
    return r.choice([f"{request}\n\n{text}", f"{request} {text}", f"{text}\n\n{request}"])


def prose(r, split):
    subject, verb = r.choice(SUBJECTS), r.choice(ACTS)
    end = r.choice(["", f" in {values.city(r, split)}", f" with {r.choice(NAMES)}", f" on {values.date(r, split)}"])
    if r.random() < 0.25:
        return fill(r, split, phrasing(r, split, UNKNOWN))
    return f"{subject[0].upper() + subject[1:]} {verb} {phrasing(r, split, TOPICS)} and the {r.choice(WORDS)}{end}."


def source_line(r, split):
    name, other = invented(r, split), r.choice(WORDS)
    return r.choice([f"def {name}({other}):", f"    return {other} + {r.randint(0, 99)}", f"for {other} in {name}:",
                     f"let {name} = {other}.{invented(r, split)}();", f"if {name} == {r.randint(0, 9)}: {other}()",
                     f'    print("{other}", {name})', f"SELECT {name} FROM {other};", "}", f"import {name}"])
