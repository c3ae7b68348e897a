"""Tools, requests that call them, their results, and answers about the results."""

import json

import values
from talk import fill
from values import TRAIN, WORDS, belongs, decimal, integer, invented, load, phrasing, sentence, words


def expression(r, _split):
    """Returns a small sum as people type it."""
    parts = [str(integer(r)) for _ in range(r.choice([2, 2, 2, 3]))]
    sign = r.choice([" + ", " - ", " * ", " / ", "+", "*"])
    return sign.join(parts)


def thing(r, split):
    """Names a thing in a word or two."""
    return " ".join(r.choice([r.choice(WORDS), r.choice(WORDS), invented(r, split)]) for _ in range(r.choice([1, 1,
    2])))


def ticker(r, split):
    """Returns a ticker symbol."""
    if r.random() < 0.5:
        return words(r, split)
    return "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(r.randint(2, 4)))


MAKERS = {"bool": bool, "list": list, "expression": expression, "thing": thing, "ticker": ticker}


def made(value):
    """Makes a value from the data; "$name" stands for the function that makes such values."""
    if isinstance(value, str) and value.startswith("$"):
        return MAKERS.get(value[1:]) or getattr(values, value[1:])
    if isinstance(value, list):
        return [made(item) for item in value]
    return {key: made(item) for key, item in value.items()} if isinstance(value, dict) else value


# PARAMETERS: how to make a parameter's value, by its name; a list is an enumeration. REAL: verbs and nouns of the name,
# descriptions, parameters, requests. OTHER_NAMES: what clients also call a parameter.
(VERBS, NOUNS, PARAMETERS, READING, MONEY, REAL, OTHER_NAMES, OPENINGS, CLOSINGS, BY_NAME, IN_WORDS, READ,
 RESULT_KEYS, STATES, RESULT_VALUES) = map(made, load("tools"))


class Tool:
    """A tool as a client offers it, and how users ask for it."""

    def __init__(self, verb, noun, name, description, parameters, requests=()):
        self.verb, self.noun, self.name, self.description = verb, noun, name, description
        self.parameters, self.requests = parameters, list(requests)

    def line(self):
        """Returns the tool as the chat template shows it to the model."""
        types = {name: shown(make) for name, make in self.parameters.items()}
        return json.dumps({"name": self.name, "description": self.description, "parameters": types})


def shown(make):
    if isinstance(make, list):
        return make
    return {integer: "integer", decimal: "number", bool: "boolean", list: "array"}.get(make, "string")


def value(r, split, make):
    if isinstance(make, list):
        return r.choice(make)
    if make is bool:
        return r.random() < 0.5
    if make is list:
        return [r.choice([invented(r, split), r.choice(WORDS)]) for _ in range(r.randint(1, 3))]
    return make(r) if make in (integer, decimal) else make(r, split)


def said(v):
    if isinstance(v, list):
        return " and ".join([", ".join(v[:-1]), v[-1]]) if len(v) > 1 else v[0]
    return v if isinstance(v, str) else json.dumps(v)


def name_of(r, verb, noun):
    forms = [f"{verb}_{noun}", verb + noun.capitalize(), f"{noun}_{verb}", f"{verb}-{noun}"]
    return r.choices(forms, [70, 15, 10, 5])[0]


def invented_tool(r, split, taken):
    """Invents a tool whose name no other split has."""
    while True:
        verb = r.choice(VERBS) if r.random() < 0.75 else invented(r, split)
        noun = r.choice(NOUNS) if r.random() < 0.5 else invented(r, split)
        name = name_of(r, verb, noun)
        if belongs("t:" + name, split) and noun not in taken:
            taken.add(noun)
            break
    parameters = {}
    for _ in range(r.choice([0, 1, 1, 1, 2, 2, 3, 4])):
        if r.random() < 0.7:
            parameter = r.choice(list(PARAMETERS))
            parameters[parameter] = PARAMETERS[parameter]
        else:
            parameters[invented(r, split)] = r.choice([words, words, values.code, integer, integer, decimal, bool])
    forms = ["{V} the {n}", "{V} a {n}", "{V} {n}", "Use this to {v} the {n}", "{V}s the {n} for the user",
             "{V} the {n}. Use it when the user asks for a {n}.", "{V} one {n} of the user and return what was done"]
    description = r.choice(forms).format(v=verb, V=verb.capitalize(), n=noun)
    return Tool(verb, noun, name, description, parameters)


def real_tool(r, taken):
    """Returns a tool as people really offer it, requested in ordinary words."""
    while True:
        verbs, nouns, descriptions, parameters, requests = r.choice(REAL)
        if not taken.intersection(nouns):
            taken.update(nouns)
            break
    verb, noun, names = r.choice(verbs), r.choice(nouns), {}
    for parameter in parameters:
        name = r.choice([parameter, parameter, *OTHER_NAMES.get(parameter, [])])
        names[parameter] = parameter if name in (*parameters, *names.values()) else name
    tool = Tool(verb, noun, r.choices([name_of(r, verb, noun), noun], [85, 15])[0], r.choice(descriptions),
                {names[p]: make for p, make in parameters.items()}, requests)
    tool.slots = names
    return tool


SPOKEN = {True: "on", False: "off"}


def request(r, split, tool):
    """Returns what the user says, and the call's arguments: those that were mentioned, in the tool's order."""
    if tool.requests:
        form = noisy_request(r, split, phrasing(r, split, tool.requests))
        given = {p: value(r, split, tool.parameters[n]) for p, n in tool.slots.items() if "{" + p + "}" in form}
        text = form.format(**{p: SPOKEN[v] if isinstance(v, bool) else said(v) for p, v in given.items()})
        return text, {tool.slots[p]: v for p, v in given.items()}
    given = {p: value(r, split, make) for p, make in tool.parameters.items() if r.random() < 0.85}
    text = stem(r, split, tool, listed(r, tool, given))
    # The name of a tool stays as written.
    begins_with_name = text.startswith(tool.name) and r.random() < 0.7
    return text if begins_with_name else text[0].upper() + text[1:], given


def noisy_request(r, split, form):
    """In training, sometimes surrounds the request with something irrelevant."""
    chance = r.random()
    if split != TRAIN or chance > 0.2:
        return form
    if chance < 0.1:
        opening = r.choice(OPENINGS)
        kept = form.startswith(("I ", "I'm", "{")) or opening.endswith(".")
        return f"{opening} {form if kept else form[0].lower() + form[1:]}"
    if form[-1] in "}?.:" or chance > 0.17:
        return f"{form if form[-1] in '?.' else form + '.'} {r.choice(CLOSINGS[-4:])}"
    return f"{form} {r.choice(CLOSINGS)}"


def listed(r, tool, given):
    """Describes the arguments in words."""
    items = [(p, said(v)) for p, v in given.items()]
    if not items:
        return ""
    kinds = [shown(make) for make in tool.parameters.values()]
    is_clear = len(items) == 1 and kinds.count(shown(tool.parameters[items[0][0]])) == 1
    if is_clear and not isinstance(given[items[0][0]], bool) and r.random() < 0.5:
        return r.choice([" for ", " in ", " of ", ": ", " to "]) + items[0][1]
    opening, pair, glue = r.choice([(" with ", "{} {}", " and "), (" with ", "{} {}", ", "), (", ", "{} = {}", ", "),
                                    (" for ", "{} {}", ", "), (" (", "{}: {}", ", "), (" with ", 'the {} {}', " and "),
                                    (" where ", "{} is {}", " and "), (" with ", '{} "{}"', " and "),
                                    (": ", "{} {}", ", "), (": ", "{} is {}", ", "), (" using ", "{} {}", ", "),
                                    (" and set ", "{} to {}", " and "), (". ", "{}: {}", ". "), (", ", "{} is {}",
                                    " and "),
                                    (" with ", "{}={}", " "), (" by ", "{} {}", " and ")])
    return opening + glue.join(pair.format(*item) for item in items) + (")" if opening == " (" else "")


SHARE_OF_NOISE = 0.25


def stem(r, split, tool, arguments):
    if r.random() < 0.25:
        return noisy(r, split, phrasing(r, split, BY_NAME)).format(tool.name) + arguments
    if tool.verb in READING and r.random() < 0.15:
        return noisy(r, split, phrasing(r, split, READ)).format(n=tool.noun, a=arguments)
    form = phrasing(r, split, IN_WORDS)
    return noisy(r, split, form).format(v=tool.verb, n=tool.noun, a=arguments)


def noisy(r, split, form):
    """In training, sometimes adds a word in it or before it: only the tool's own words count."""
    if split != TRAIN or r.random() > SHARE_OF_NOISE:
        return form
    other = r.choice([r.choice(OPENINGS), invented(r, split).capitalize(), r.choice(WORDS).capitalize()])
    begun, brace, rest = form.partition("{")
    if not begun or r.random() < 0.5:
        return f"{other} {form[0].lower()}{form[1:]}"
    parts = begun.split(" ")
    parts[r.randrange(len(parts) - 1)] = other.lower()
    return " ".join(parts) + brace + rest


def call(tool, arguments):
    written = json.dumps({"name": tool.name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{written}\n</tool_call>"


def result(r, split):
    """Returns a tool's result, and how the model reports it."""
    chance = r.random()
    if chance < 0.1:
        text = r.choice([sentence(r, split), r.choice(STATES), str(integer(r)), words(r, split)])
        return text, f"The result is {text}."
    if chance < 0.17:
        text = r.choice(["not found", "no access", "timeout", f"unknown {invented(r, split)}", "invalid value"])
        return json.dumps({"error": text}), f"That failed: {text}."
    keys = r.sample([*RESULT_KEYS, invented(r, split), "sky"], r.choice([1, 1, 1, 1, 2, 3]))
    fields = {}
    for key in keys:
        make = RESULT_VALUES.get(key)
        fields[key] = value(r, split, make) if make else r.choice([r.choice(STATES), words(r, split)])
    text = " and ".join(f"the {key} is {said(v)}" for key, v in fields.items()) + "."
    spaced = r.random() < 0.8
    return json.dumps(fields, separators=None if spaced else (",", ":"), ensure_ascii=False), text[0].upper() + text[1:]


def unrelated(r, split, taken):
    """Makes a request that no offered tool answers: it is for another tool, or shares no noun with them."""
    if r.random() < 0.5:
        return request(r, split, real_tool(r, set(taken)))[0]
    forms = ["What is the capital of {c}?", "Who wrote {t}?", "Explain {t} to me", "Write a poem about {t}",
             "Who is the president of {c}?", "When was {n} born?", "Tell me a joke about {t}",
             "Why is {w} {w2}?", "Compare {t} with {t2}", "Write a haiku about {t}", "Write an essay on {t} and {w2}",
             "How do I learn {t}?", "What do you think about {t}?", "Give me advice about {t}"]
    while True:
        text = fill(r, split, phrasing(r, split, forms))
        if not any(noun in text.lower() for noun in taken):
            return text
