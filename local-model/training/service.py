"""Questions about this service, with answers of a sentence or two that follow the README."""

from talk import polite
from values import load, phrasing

# TASKS: something a user wants to do, and the answer. QUESTIONS: something a user asks, and the answer.
(DOING, NEEDING, STATUS, CODE, IN_WORDS, TASKS, QUESTIONS) = load("service")


def wordings(item):
    """Returns the phrasings for an item of a list: the item itself, or what a pattern makes of its words."""
    if isinstance(item, str):
        return [item]
    [(pattern, given)] = item.items()
    if pattern == "cross":
        verbs, things = given
        return [f"{verb} {thing}" for verb in verbs for thing in things]
    if pattern == "needing":
        return [form.format(thing) for form in NEEDING for thing in given]
    if pattern == "status":
        return [form.format(given) for form in STATUS]
    spelled = [form.format(given) for form in CODE] + [form.format(given.replace("_", " ")) for form in IN_WORDS]
    return list(dict.fromkeys(spelled))


def expanded(pairs):
    return [([wording for item in items for wording in wordings(item)], answer) for items, answer in pairs]


TASKS, QUESTIONS = expanded(TASKS), expanded(QUESTIONS)


def question(r, split):
    """Makes a question about the service."""
    if r.random() < 0.55:
        wishes, answer = r.choice(TASKS)
        return polite(r, r.choice(DOING).format(phrasing(r, split, wishes))), answer
    questions, answer = r.choice(QUESTIONS)
    return polite(r, phrasing(r, split, questions)), answer
