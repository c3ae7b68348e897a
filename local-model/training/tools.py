"""Tools, requests that call them, their results, and what is said about the results."""

import json

import values
from talk import fill
from values import TEST, WORDS, decimal, integer, invented, is_held_out, phrasing, sentence, words

VERBS = """get find search create delete update send list check fetch read open close start stop play book order add
remove convert translate show set turn lock count save load run share cancel rate track""".split()
NOUNS = """weather price user order file room light music email ticket flight hotel stock news event song invoice
report task note door camera temperature balance package recipe alarm timer contact photo page account
device meeting""".split()

# How a parameter's value is made, by its name. A list is an enumeration.
PARAMETERS = {
    "city": values.city, "location": values.city, "place": values.city, "name": values.person, "user": values.person,
    "to": values.email, "email": values.email, "recipient": values.email, "url": values.url, "link": values.url,
    "date": values.date, "day": values.date, "time": values.time, "start": values.time, "id": values.code,
    "order_id": values.code, "path": values.path, "query": words, "title": words, "text": sentence, "message": sentence,
    "subject": sentence, "topic": words, "room": values.room, "item": words, "symbol": words, "category": words,
    "amount": decimal, "price": decimal, "degrees": decimal, "limit": integer, "days": integer, "count": integer,
    "level": integer, "quantity": integer, "minutes": integer, "page": integer, "on": bool, "active": bool,
    "urgent": bool, "unit": ["celsius", "fahrenheit"], "priority": ["low", "normal", "high"],
    "status": ["open", "closed", "pending"], "language": ["English", "French", "German", "Spanish"],
    "format": ["json", "csv", "pdf"], "size": ["small", "medium", "large"], "currency": ["USD", "EUR", "GBP", "JPY"],
    "tags": list, "names": list}
READING = ("get", "find", "check", "show", "fetch", "read")

# (verbs of the name, nouns of the name, description, parameters, requests). Other words for the parameters are drawn.
REAL = [
    (["get", "fetch", "current", "check"], ["weather", "forecast"], "Get the current weather in a city",
     {"city": values.city, "days": integer, "unit": ["celsius", "fahrenheit"]},
     ["What is the weather in {city}?", "How is the weather in {city} today?", "Will it rain in {city}?",
      "Weather in {city} please", "Is it cold in {city}?", "What is the weather like in {city}?",
      "What is the weather in {city} for {days} days?", "Forecast for {city} for the next {days} days",
      "Do I need an umbrella in {city}?", "Is it sunny in {city}?", "How hot is it in {city} in {unit}?",
      "What is the temperature in {city} in {unit}?", "Weather in {city}, in {unit}"]),
    (["get", "current"], ["time", "clock"], "Get the current time in a city", {"city": values.city},
     ["What time is it in {city}?", "What is the time in {city}?", "How late is it in {city}?",
      "Tell me the time in {city}", "Current time in {city}?", "What is the local time in {city}?"]),
    (["send", "write"], ["email", "mail"], "Send an e-mail", {"to": values.email, "subject": sentence},
     ["Send an email to {to} about {subject}", "Email {to} with the subject {subject}", "Write to {to} about {subject}",
      "Send {to} an email with subject {subject}", "Send an email to {to}", "Mail {to} about {subject}"]),
    (["search", "query"], ["web", "internet"], "Search the web", {"query": words},
     ["Search the web for {query}", "Look up {query}", "Search for {query}", "Find {query} on the web",
      "Google {query}", "Find information about {query}"]),
    (["convert", "exchange"], ["currency", "money"], "Convert money",
     {"amount": decimal, "currency": ["USD", "EUR", "GBP"]},
     ["Convert {amount} to {currency}", "How much is {amount} in {currency}?", "What is {amount} in {currency}?",
      "Change {amount} into {currency}"]),
    (["set", "switch", "control"], ["lights", "light"], "Turn the lights of a room on or off",
     {"room": values.room, "on": bool},
     ["Turn {on} the lights in the {room}", "Turn the {room} lights {on}", "Switch {on} the light in the {room}",
      "Lights {on} in the {room}", "Please turn {on} the {room} light", "Switch the lights in the {room} {on}",
      "Set the lights in the {room} to {on}", "I want the light in the {room} {on}"]),
    (["add", "sum"], ["numbers"], "Add two numbers", {"a": integer, "b": integer},
     ["What is {a} + {b}?", "Add {a} and {b}", "What is {a} plus {b}?", "{a} + {b}", "How much is {a} and {b}?",
      "Sum {a} and {b}", "Compute {a} + {b}"]),
    (["multiply"], ["numbers"], "Multiply two numbers", {"a": integer, "b": integer},
     ["What is {a} * {b}?", "Multiply {a} by {b}", "What is {a} times {b}?", "{a} * {b}", "How much is {a} times {b}?",
      "Multiply {a} and {b}", "Compute {a} * {b}"]),
    (["create", "add", "book"], ["event", "meeting"], "Add an event to the calendar",
     {"title": words, "date": values.date, "time": values.time},
     ["Book a meeting about {title} on {date} at {time}", "Add {title} to my calendar on {date} at {time}",
      "Schedule {title} for {date} at {time}", "Create an event {title} on {date}",
      "Meeting {title} on {date} at {time}"]),
    (["book", "reserve"], ["table", "restaurant"], "Book a table",
     {"restaurant": words, "people": integer, "time": values.time},
     ["Book a table for {people} at {restaurant} at {time}", "Reserve a table at {restaurant} for {people} people",
      "Table for {people} at {restaurant}, {time}", "Get me a table at {restaurant} for {people} at {time}"]),
    (["translate"], ["text", "words"], "Translate a text",
     {"text": sentence, "language": ["French", "German", "Spanish"]},
     ["Translate {text} to {language}", "Translate {text} into {language}", "What is {text} in {language}?",
      "Say {text} in {language}"]),
    (["get", "track", "find"], ["order", "package"], "Find out where an order is", {"order_id": values.code},
     ["Where is my order {order_id}?", "Track order {order_id}", "What is the status of order {order_id}?",
      "Has {order_id} been shipped?", "When does order {order_id} arrive?", "Check on package {order_id}"]),
    (["play", "start"], ["music", "song"], "Play music", {"song": words, "artist": values.person},
     ["Play {song} by {artist}", "Play {song}", "Put on {song} by {artist}", "I want to hear {song}",
      "Start playing {song} by {artist}"]),
    (["set", "start"], ["timer", "alarm"], "Set a timer", {"minutes": integer},
     ["Set a timer for {minutes} minutes", "Wake me in {minutes} minutes", "Timer for {minutes} minutes",
      "Start a timer of {minutes} minutes", "Remind me in {minutes} minutes"]),
    (["open", "fetch", "read"], ["page", "url"], "Read a web page", {"url": values.url},
     ["Open {url}", "What does {url} say?", "Read {url}", "Fetch {url}", "Summarize {url}", "Show me the page {url}"]),
    (["get", "find", "lookup"], ["user", "customer"], "Find a user by e-mail", {"email": values.email},
     ["Who is {email}?", "Find the user {email}", "Look up {email}", "Which user has the email {email}?",
      "Show me the customer {email}"]),
    (["get", "check"], ["stock", "quote"], "Get the price of a stock", {"symbol": words},
     ["What is the stock price of {symbol}?", "How is {symbol} doing on the stock market?", "Price of {symbol} shares?",
      "What does a share of {symbol} cost?", "Get me a quote for {symbol}"]),
    (["create", "open"], ["ticket", "issue"], "Open a ticket",
     {"title": sentence, "priority": ["low", "normal", "high"]},
     ["Open a ticket about {title} with {priority} priority", "Create a {priority} priority ticket: {title}",
      "File an issue: {title}", "New ticket {title}, priority {priority}", "Report that {title}"]),
    (["set", "change"], ["temperature", "heating"], "Set the temperature of a room",
     {"room": values.room, "degrees": decimal},
     ["Set the {room} to {degrees} degrees", "Make it {degrees} degrees in the {room}", "Heat the {room} to {degrees}",
      "Temperature in {room} to {degrees} please"]),
    (["find", "search"], ["hotel", "flight"], "Find a hotel or a flight", {"city": values.city, "date": values.date},
     ["Find me something in {city} on {date}", "I need a room in {city} on {date}", "I travel to {city} on {date}",
      "Search for {city} on {date}", "I want to go to {city} on {date}"]),
]


class Tool:
    """A tool as a client offers it, and how users ask for it."""

    def __init__(self, verb, noun, name, description, parameters, requests=()):
        self.verb, self.noun, self.name, self.description = verb, noun, name, description
        self.parameters, self.requests = parameters, list(requests)

    def line(self):
        """As the chat template shows it to the model."""
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
    """A tool that no other split has, by its name."""
    while True:
        verb = r.choice(VERBS) if r.random() < 0.75 else invented(r, split)
        noun = r.choice(NOUNS) if r.random() < 0.5 else invented(r, split)
        name = name_of(r, verb, noun)
        if is_held_out("t:" + name) == (split == TEST) and noun not in taken:
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
    """A tool as people really offer it, asked for in ordinary words."""
    while True:
        verbs, nouns, description, parameters, requests = r.choice(REAL)
        if description not in taken and not taken.intersection(nouns):
            taken.update([description, *nouns])
            break
    verb, noun = r.choice(verbs), r.choice(nouns)
    other = {"city": ["location", "place", "city_name"], "query": ["q", "search", "text"], "to": ["email", "recipient"],
             "order_id": ["id", "number", "order"], "symbol": ["stock", "ticker"], "url": ["link", "address"]}
    names = {p: r.choice([p, p, *other.get(p, [])]) for p in parameters}
    tool = Tool(verb, noun, r.choices([name_of(r, verb, noun), noun], [85, 15])[0], description,
                {names[p]: make for p, make in parameters.items()}, requests)
    tool.slots = names
    return tool


SPOKEN = {True: "on", False: "off"}


def request(r, split, tool):
    """What the user says, and the arguments that the call then has: those that were mentioned, in the tool's order."""
    if tool.requests:
        form = phrasing(r, split, tool.requests)
        given = {p: value(r, split, tool.parameters[n]) for p, n in tool.slots.items() if "{" + p + "}" in form}
        text = form.format(**{p: SPOKEN[v] if isinstance(v, bool) else said(v) for p, v in given.items()})
        return text, {tool.slots[p]: v for p, v in given.items()}
    given = {p: value(r, split, make) for p, make in tool.parameters.items() if r.random() < 0.85}
    text = stem(r, split, tool, listed(r, given))
    return text[0].upper() + text[1:], given


def listed(r, given):
    """The arguments in words."""
    items = [(p, said(v)) for p, v in given.items()]
    if not items:
        return ""
    if len(items) == 1 and not isinstance(next(iter(given.values())), bool) and r.random() < 0.35:
        return r.choice([" for ", " in ", " of ", ": ", " to "]) + items[0][1]
    opening, pair, glue = r.choice([(" with ", "{} {}", " and "), (" with ", "{} {}", ", "), (", ", "{} = {}", ", "),
                                    (" for ", "{} {}", ", "), (" (", "{}: {}", ", "), (" with ", 'the {} {}', " and "),
                                    (" where ", "{} is {}", " and "), (" with ", '{} "{}"', " and ")])
    return opening + glue.join(pair.format(*item) for item in items) + (")" if opening == " (" else "")


BY_NAME = ["Call {}", "Use {}", "Run {}", "Please call {}", "Use the {} tool", "Invoke {}", "Execute {}", "Try {}"]
IN_WORDS = ["{v} the {n}{a}", "Please {v} the {n}{a}", "Can you {v} the {n}{a}?", "I want to {v} a {n}{a}",
            "{v} {n}{a}", "{v} a {n}{a}.", "I need you to {v} the {n}{a}", "Could you {v} the {n}{a}?",
            "Would you {v} the {n}{a}?", "I would like you to {v} the {n}{a}", "Now {v} the {n}{a}",
            "Let us {v} a {n}{a}"]


def stem(r, split, tool, arguments):
    if r.random() < 0.25:
        return phrasing(r, split, BY_NAME).format(tool.name) + arguments
    if tool.verb in READING and r.random() < 0.15:
        return f"What is the {tool.noun}{arguments}?"
    return phrasing(r, split, IN_WORDS).format(v=tool.verb, n=tool.noun, a=arguments)


def call(tool, arguments):
    written = json.dumps({"name": tool.name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{written}\n</tool_call>"


RESULT_KEYS = "temperature condition price status total name result count state id time email date url".split()
STATES = "sunny rainy ok done open closed ready failed cloudy sent booked shipped clear".split()
RESULT_VALUES = {"temperature": integer, "price": decimal, "total": decimal, "count": integer, "id": values.code,
                 "time": values.time, "email": values.email, "date": values.date, "url": values.url,
                 "name": values.person}


def result(r, split):
    """What a tool returned, and how the model tells it."""
    chance = r.random()
    if chance < 0.1:
        text = r.choice([sentence(r, split), r.choice(STATES), str(integer(r)), words(r, split)])
        return text, f"The result is {text}."
    if chance < 0.17:
        text = r.choice(["not found", "no access", "timeout", f"unknown {invented(r, split)}", "invalid value"])
        return json.dumps({"error": text}), f"That failed: {text}."
    keys = r.sample([*RESULT_KEYS, invented(r, split), "sky"], r.choice([1, 1, 2, 2, 3]))
    fields = {}
    for key in keys:
        make = RESULT_VALUES.get(key)
        fields[key] = value(r, split, make) if make else r.choice([r.choice(STATES), words(r, split)])
    text = " and ".join(f"the {key} is {said(v)}" for key, v in fields.items()) + "."
    spaced = r.random() < 0.8
    return json.dumps(fields, separators=None if spaced else (",", ":"), ensure_ascii=False), text[0].upper() + text[1:]


def unrelated(r, split, taken):
    """A request that none of the offered tools answers: it is for another tool, or shares no noun with them."""
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
