"""Small talk and small tricks: greetings, colours, repeating, JSON, memory, what the model is, and not knowing."""

import json

import values
from values import ABROAD, CITIES, NAMES, TEST, WORDS, integer, invented, is_held_out, phrasing, word

ABOUT = ("I am tiny-demo, a demo model of 2.6 million parameters, trained from templates. I am no assistant: I am here "
         "to try the service with.")
CAN_DO = ("I can greet you, answer questions about keys, limits, credit and errors, repeat text, name colours, count, "
          "write small JSON and call tools. For anything else, connect a larger model.")
DO_NOT_KNOW = ("I am a very small built-in model and I do not know that. Connect a larger model for this kind of "
               "question.")

HELLOS = ("Hello;Hi;Hey;Hi there;Hello there;Good morning;Good evening;Good afternoon;Howdy;Greetings;Yo;hello;hi;hey;"
          "HELLO;Hey there;Hi all").split(";")
HELLO_ENDS = ["", "", "!", ".", " :)", " assistant", " bot", " model", " friend", " computer", " again", "!!"]
SMALL_TALK = [
    (["How are you?", "How are you doing?", "How do you do?", "How is it going?", "Are you ok?", "How are you today?",
      "How do you feel?", "Hello, how are you?", "What's up?"], "I am well, thank you. How can I help you?"),
    (["Thank you", "Thanks", "Thanks a lot", "Thank you very much", "Great, thanks", "Cheers", "Many thanks", "Thx",
      "Thank you so much", "Perfect, thank you", "That helped, thanks", "Nice, thank you"], "You are welcome!"),
    (["Bye", "Goodbye", "See you", "See you later", "Good night", "Bye bye", "Talk to you later", "Farewell",
      "Have a nice day", "That is all, bye"], "Goodbye! Come back any time."),
    (["OK", "Okay", "Fine", "Good", "I see", "Great", "Cool", "Nice", "Perfect", "Understood"],
     "Good. How can I help you?"),
    (["Are you there?", "Ping", "ping", "Can you hear me?", "Are you alive?", "Are you online?", "Is this working?",
      "Does this work?", "Test", "testing", "This is a test", "Hello, are you there?", "Hi, anyone there?"],
     "Yes, I am here. The service works."),
]
WHO = [
    (["Who are you?", "What are you?", "What model are you?", "Which model is this?", "Are you GPT?",
     "Are you ChatGPT?",
      "Are you Claude?", "What is your name?", "Introduce yourself", "Tell me about yourself", "Are you a real model?",
      "Are you an AI?", "Are you human?", "What model am I talking to?", "Who am I talking to?",
      "Are you an assistant?",
      "How big are you?", "How many parameters do you have?", "Are you a large model?", "Who made you?",
      "How were you trained?", "What were you trained on?", "Are you Llama?", "Which LLM are you?"], ABOUT),
    (["What can you do?", "Help", "How can you help me?", "What do you know?", "What are you good at?",
      "What can I ask you?", "What should I ask?", "Can you help me?", "What are your skills?", "What else can you do?",
      "help me", "What do you do?"], CAN_DO),
]

COLOUR_OF = {
    "the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a banana": "yellow", "blood": "red",
    "a lemon": "yellow", "the sea": "blue", "a tomato": "red", "milk": "white", "a carrot": "orange", "a crow": "black",
    "a leaf": "green", "the sun": "yellow", "a strawberry": "red", "chocolate": "brown", "a pumpkin": "orange",
    "an eggplant": "purple", "a polar bear": "white", "a fire truck": "red", "a frog": "green", "a flamingo": "pink",
    "an elephant": "gray", "a cucumber": "green"}
HEX = {"red": "#ff0000", "green": "#00ff00", "blue": "#0000ff", "yellow": "#ffff00", "white": "#ffffff",
       "black": "#000000", "orange": "#ffa500", "purple": "#800080", "pink": "#ffc0cb", "gray": "#808080",
       "brown": "#a52a2a"}
MIXED = {("blue", "yellow"): "green", ("red", "yellow"): "orange", ("red", "blue"): "purple", ("red", "white"): "pink",
         ("black", "white"): "gray"}
LISTS = {"colours": ["red", "orange", "yellow", "green", "blue", "purple", "white"],
         "fruits": ["apple", "banana", "cherry", "grape", "lemon", "mango", "orange"],
         "animals": ["cat", "dog", "fox", "horse", "lion", "rabbit", "tiger"],
         "planets": ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus"]}
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth"]


def polite(r, text):
    """The same words with a courtesy before them, or with less care."""
    begins_like_a_name = text.startswith("I ") or (len(text) > 1 and text[1].isupper())
    chance = r.random()
    if not begins_like_a_name and chance < 0.12 and not text.endswith("?"):
        text = "Please " + text[0].lower() + text[1:]
    elif not begins_like_a_name and chance < 0.18:
        text = r.choice(["Hi, ", "Hey, ", "Hello, ", "OK, ", "Thanks. ", "Next: "]) + text[0].lower() + text[1:]
    if r.random() < 0.2:
        text = text.rstrip("?.!")
    if r.random() < 0.12 and not any(c.isupper() for c in text[1:]):
        text = text.lower()
    return text


def greeting(r, split):
    if r.random() < 0.5:
        while True:
            text = r.choice(HELLOS) + r.choice(HELLO_ENDS)
            if is_held_out("q:" + text) == (split == TEST):
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


ECHOES = ["Repeat after me: {}", "Say {}", "Say: {}", "Echo {}", "Echo: {}", "Repeat: {}", "Repeat {}",
          "Reply with exactly: {}", "Reply with {}", "Say exactly {}", 'Say "{}"', 'Repeat "{}"', "Please say {}",
          "Respond with only {}", 'Answer with "{}"', "Output {}", "Print: {}", "Write {}", "Copy this: {}",
          "Just say {}", "Reply only with: {}", 'Reply with the word "{}"', "Can you say {}"]
BACKWARDS = ["Reverse the words: {}", "Reverse this list: {}", "Say these words backwards: {}",
             "Put these in reverse order: {}"]
NTH = ["What is the {} word of: {}", "Give me the {} word: {}", "Which word is {} in: {}"]
TIMES = ["Say {} {} times", "Repeat {} {} times", "Write {} {} times"]


def echo(r, split):
    chance = r.random()
    if chance < 0.7:
        text = phrase(r, split, r.randint(1, 7))
        return phrasing(r, split, ECHOES).format(text), text
    few = [r.choice([invented(r, split), r.choice(WORDS)]) for _ in range(r.randint(2, 5))]
    if chance < 0.8:
        glue = r.choice([" ", ", "])
        return phrasing(r, split, BACKWARDS).format(glue.join(few)), glue.join(few[::-1])
    if chance < 0.9:
        place = r.randrange(len(few))
        name = "last" if place == len(few) - 1 and r.random() < 0.5 else ORDINALS[place]
        return r.choice(NTH).format(name, " ".join(few)), few[place]
    text, count = phrase(r, split, r.randint(1, 3)), r.randint(2, 4)
    return r.choice(TIMES).format(text, count), ", ".join([text] * count)


THING_FORMS = ["What {} is {}?", "Which {} is {}?", "What is the {} of {}?", "Tell me the {} of {}.",
               "Name the {} of {}",
               "Do you know what {} {} is?", "What {} has {}?"]
HEX_FORMS = ["What is the hex code for {}?", "What is {} in hex?", "Give me the hex code of {}", "Hex code for {}?",
             "Which hex code is {}?", "Write {} as hex", "How do I write {} in CSS?"]
MIX_FORMS = ["What do you get when you mix {} and {}?", "Mix {} and {}", "What colour do {} and {} make?",
             "What is {} plus {} paint?", "What color is {} mixed with {}?", "Combine {} and {}. What do I get?"]


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
    while True:
        text, answer = count(r)
        if is_held_out("q:" + answer) == (split == TEST):
            return text, answer


def count(r):
    chance = r.random()
    if chance < 0.6:
        low = r.choice([1, 1, r.randint(0, 60)])
        high = low + r.randint(1, 20)
        forms = ["Count from {0} to {1}", "Count from {0} to {1}.", "List the numbers from {0} to {1}",
                 "Numbers from {0} to {1} please"] + (["Count to {1}", "Count up to {1}."] if low == 1 else [])
        return r.choice(forms).format(low, high), ", ".join(map(str, range(low, high + 1)))
    if chance < 0.75:
        high = r.randint(2, 20)
        forms = ["Count down from {}", "Count backwards from {}", "Countdown from {}"]
        return r.choice(forms).format(high), ", ".join(map(str, range(high, 0, -1)))
    number, (kind, items) = r.randint(2, 7), r.choice(list(LISTS.items()))
    forms = ["Name {} {}", "List {} {}", "Give me {} {}", "Write a list of {} {}", "Tell me {} {}."]
    answer = "\n".join(f"{i + 1}. {item}" for i, item in enumerate(items[:number]))
    return r.choice(forms).format(number, kind), answer


STORIES = ["Tell me a story about {} and a {}.", "Write a story about {} and a {}",
           "Tell a short story with {} and a {}",
           "I want a story about {} and a {}.", "Tell me a story.", "Tell me a story", "Write a story",
           "A story please"]


def story(r, split):
    name, animal = values.person(r, split), r.choice(["cat", "dog", "robot", "bird", "fox", "dragon"])
    form = r.choice(STORIES)
    if "{}" not in form:
        name, animal = "Ada", "robot"
    return form.format(name, animal), (
        f"Once upon a time, {name} met a {animal}. The {animal} was lost and sad. {name} gave the {animal} some food "
        f"and a warm bed. In the morning they walked home together. From that day on, {name} and the {animal} were "
        "best friends. The end.")


JSON_FORMS = ["Write JSON with {}", "Give me a JSON object with {}", "Return JSON: {}", "Make a JSON object with {}.",
              "As JSON: {}", "Output a JSON object with {}", "Create JSON with {}", "Make JSON with {}",
              "Turn this into JSON: {}", "Extract as JSON: {}", "JSON please: {}", "Write this as JSON: {}"]
JSON_KEYS = "name age city color id email title count price active status type url date time user".split()


def as_json(r, split):
    fields = {}
    for key in r.sample(JSON_KEYS + [invented(r, split), invented(r, split)], r.randint(1, 4)):
        fields[key] = field(r, split, key)
    glue, pair = r.choice([(" and ", "{} {}"), (" and ", "{} {}"), (", ", "{} {}"), (", ", "{}: {}"),
                           (", ", "{} is {}"), (" and ", "{} = {}")])
    said = glue.join(pair.format(k, v if isinstance(v, str) else json.dumps(v)) for k, v in fields.items())
    return phrasing(r, split, JSON_FORMS).format(said), json.dumps(fields, ensure_ascii=False)


def field(r, split, key):
    if key in ("age", "id", "count"):
        return integer(r)
    if key == "price":
        return values.decimal(r)
    if key == "active":
        return r.random() < 0.5
    special = {"email": values.email, "url": values.url, "date": values.date, "time": values.time}
    if key in special:
        return special[key](r, split)
    return integer(r) if r.random() < 0.2 else word(r, split)


INTRODUCTIONS = ["My name is {}.", "I am {}", "Hi, I'm {}.", "Call me {}", "Hello, my name is {}",
                 "I'm {}, nice to meet you",
                 "Hey, this is {}", "People call me {}."]
NAME_QUESTIONS = ["What is my name?", "Who am I?", "Do you remember my name?", "What's my name?", "Say my name",
                  "Tell me my name", "Do you know who I am?", "What am I called?"]
TOLD = ["Remember that the {} is {}.", "The {} is {}.", "Please remember: the {} is {}", "Note that the {} is {}",
        "Keep in mind that the {} is {}", "For later: the {} is {}"]
RECALLED = ["What is the {}?", "Tell me the {}.", "What was the {}?", "Which {} did I give you?",
            "Do you remember the {}?",
            "Give me the {} again"]
KEPT = ["code", "password", "favourite word", "secret word", "order number", "city", "e-mail", "deadline",
        "meeting time"]
KEPT_SPECIALLY = {"e-mail": values.email, "deadline": values.date, "meeting time": values.time,
                  "order number": values.code}
ROLES = ["You are {}.", "Your name is {}.", "You are {}, a helpful assistant.", "You are called {}"]
ROLE_QUESTIONS = ["Who are you?", "What is your name?", "Introduce yourself", "What are you called?"]


def memory(r, split, between):
    """A dialogue in which the last answer stands in an earlier message; `between` makes a turn to put in between."""
    chance, name = r.random(), values.person(r, split)
    if chance < 0.25:
        role, asked = r.choice(ROLES).format(name), r.choice(ROLE_QUESTIONS)
        return [("system", role), ("user", asked), ("assistant", f"I am {name}.")]
    middle = between(r, split) if r.random() < 0.5 else []
    if chance < 0.6:
        return [("user", phrasing(r, split, INTRODUCTIONS).format(name)), ("assistant", f"Nice to meet you, {name}!"),
                *middle, ("user", phrasing(r, split, NAME_QUESTIONS)), ("assistant", f"Your name is {name}.")]
    thing = r.choice(KEPT)
    if thing in KEPT_SPECIALLY:
        kept = KEPT_SPECIALLY[thing](r, split)
    else:
        kept = word(r, split) if r.random() < 0.7 else str(integer(r))
    return [("user", phrasing(r, split, TOLD).format(thing, kept)), ("assistant", f"OK, the {thing} is {kept}."),
            *middle, ("user", phrasing(r, split, RECALLED).format(thing)), ("assistant", f"The {thing} is {kept}.")]


TOPICS = (
    "photosynthesis|gravity|democracy|inflation|quantum physics|the French Revolution|the Roman Empire|"
    "World War II|Shakespeare|Mozart|Napoleon|Einstein|Beethoven|Cleopatra|football|basketball|tennis|"
    "chess|yoga|meditation|dinosaurs|volcanoes|black holes|the solar system|climate change|electric cars|"
    "solar panels|the stock market|taxes|mortgages|marriage|love|happiness|sleep|dreams|cancer|vitamins|"
    "headaches|bread|pasta|sushi|pizza|wine|cheese|omelettes|soup|Python|Rust|JavaScript|Kubernetes|"
    "Docker|Linux|Git|regular expressions|recursion|binary search|a linked list|SQL joins|machine learning|"
    "transformers|neural networks|blockchain|compilers|the internet|airplanes|bridges|the Eiffel Tower|"
    "Mount Everest|Antarctica|penguins|elephants|whales|bees|roses|bonsai trees|guitars|jazz|poetry|"
    "novels|painting|photography|Harry Potter|Star Wars|the Mona Lisa|Bitcoin|startups|job interviews|a CV|"
    "a cover letter|a birthday party|gifts|camping|surfing|Italy|Japan|Brazil|New York|the Amazon|diabetes|"
    "anxiety|grammar|Latin|Spanish verbs|the moon|a proof of Pythagoras|prime numbers|calculus|statistics|"
    "triangles|logarithms|the speed of light|atoms|DNA|viruses").split("|")
UNKNOWN = [
    "What is the capital of {c}?", "Who wrote {t}?", "Explain {t} to me", "What is the meaning of {w}?",
    "Write a poem about {t}", "Translate {w} to French", "Who won the game in {c}?", "How do I cook {w}?",
    "What happened in {c} in {y}?", "Write a Python function for {t}", "Why is {w} {w2}?",
    "Summarize the history of {c}",
    "What is the population of {c}?", "Give me advice about {t}", "How far is {c} from {c2}?", "Who is {n}?",
    "What do you think about {t}?", "How does {t} work?", "Write an essay on {t} and {w2}",
    "Who is the president of {c}?", "When was {n} born?", "Fix this code: {w}({w2})", "What is the best {w} in {c}?",
    "Can you recommend a book about {t}?", "Is {t} better than {t2}?", "What is the weather in {c}?",
    "What time is it in {c}?", "Prove that {w} is {w2}", "Draft an email to {n} about {t}", "What is {t}?",
    "Define {w}",
    "Where is {c}?", "How old is {n}?", "Plan a trip to {c}", "What should I eat in {c}?", "Who invented {t}?",
    "How many {w}s are there in {c}?", "What are the causes of {t}?", "Write a haiku about {t}",
    "Compare {t} with {t2}",
    "Debug my {w} program", "Write SQL to find {w}", "Tell me about {t}", "Tell me a joke about {t}", "Tell me a joke",
    "What day is it?", "What is the news?", "What time is it?", "How do I learn {t}?",
    "What is the price of {w} in {c}?",
    "Should I buy {t}?", "How do I get from {c} to {c2}?", "I feel sad about {t}", "Sing a song about {t}",
    "What is {a} + {b}?", "What is {a} times {b}?", "Calculate {a} / {b}", "{a} - {b} = ?", "How much is {a} plus {b}?",
    "Compute {a} * {b}", "Solve x + {a} = {b}", "What is the square root of {a}?", "Is {a} a prime number?",
    "How do I deploy {t}?", "How do I install {w}?", "Send an email to {e}", "Call {n} at {h}", "Open {l}",
    "What does {l} say?", "Book a table in {c} at {h}", "Remind me at {h} to call {n}", "Buy {a} shares of {w}",
    "Search the web for {t}", "Turn on the {w}", "Set a timer for {a} minutes", "How do I fix my {w}?"]


def fill(r, split, form):
    def topic():
        return invented(r, split) if r.random() < 0.25 else phrasing(r, split, TOPICS)

    return form.format(
        c=values.city(r, split), c2=r.choice(CITIES), w=r.choice([invented(r, split), r.choice(WORDS)]),
        w2=r.choice(WORDS), n=r.choice(NAMES), y=r.randint(1800, 2025), t=topic(), t2=topic(), a=integer(r),
        b=integer(r), e=values.email(r, split), h=values.time(r, split), l=values.url(r, split))


def unknown(r, split):
    """What a model this small cannot know, so that it says so."""
    if r.random() < 0.15:
        return long_unknown(r, split), DO_NOT_KNOW
    return polite(r, fill(r, split, phrasing(r, split, UNKNOWN))), DO_NOT_KNOW


REQUESTS = ["Summarize this text:", "Translate this into German:", "Rewrite this more politely:",
            "What does this mean?",
            "Fix the errors in this text:", "What is wrong with this code?", "Explain this code:", "Review this:",
            "Find the bug:", "Give me the main points of this:", "Continue this story:", "Classify this review:",
            "What is the mood of this text?", "Write a reply to this:", "Make this shorter:",
            "Answer the question below."]
SUBJECTS = ["the old man", "my neighbour", "our team", "a small boat", "the company", "this report", "the new law",
            "nobody", "the teacher", "a customer"]
ACTS = ["looked at", "forgot", "brought back", "wrote about", "was afraid of", "sold", "described", "never understood",
        "waited for", "asked about"]


def long_unknown(r, split):
    """A long prompt about something else: a text or some code, with a request before or after it."""
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
