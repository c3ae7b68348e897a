"""Small talk and small tricks: greetings, colours, repeating, JSON, memory, what the model is, and not knowing."""

import json
import re

import values
from values import ABROAD, CITIES, COMMON, NAMES, WORDS, belongs, integer, invented, phrasing, word

ABOUT = ("I am tiny-demo, a demo model of 2.6 million parameters, trained from templates. I am no assistant: I am here "
         "to try the service with.")
CAN_DO = ("I can greet you, answer questions about keys, limits, credit and errors, repeat text, name colours, count, "
          "write small JSON and call tools. For anything else, connect a larger model.")
DO_NOT_KNOW = ("I am a very small built-in model and I do not know that. Connect a larger model for this kind of "
               "question.")

HELLOS = ("Hello;Hi;Hey;Hi there;Hello there;Good morning;Good evening;Good afternoon;Howdy;Greetings;Yo;hello;hi;hey;"
          "HELLO;Hey there;Hi all;Good day;Hiya;Hello hello;Hello everyone;Hi again;Hey you;Welcome;Evening").split(";")
HELLO_ENDS = ["", "", "!", ".", " :)", " assistant", " bot", " model", " friend", " computer", " again", "!!",
              ", nice to meet you", " from me", ", I am new here", " robot"]
SMALL_TALK = [
    (["How are you?", "How are you doing?", "How do you do?", "How is it going?", "Are you ok?", "How are you today?",
      "How do you feel?", "Hello, how are you?", "What's up?", "Good morning, how are you?", "Hi, how are you doing?",
      "How's it going?", "How have you been?", "How is your day?", "How was your day?", "Hey, how are things?",
      "How are things?", "Are you well?", "Are you doing well?", "Is everything ok with you?", "All good?",
      "How are you feeling today?", "Hi! How are you today?", "How goes it?", "Everything fine with you?",
      "I hope you are well", "Hey there, how are you?", "Are you having a good day?", "Hello! How do you feel today?",
      "Good evening, how are you doing?", "so how are you", "You ok?"],
     "I am well, thank you. How can I help you?"),
    (["Thank you", "Thanks", "Thanks a lot", "Thank you very much", "Great, thanks", "Cheers", "Many thanks", "Thx",
      "Thank you so much", "Perfect, thank you", "That helped, thanks", "Nice, thank you", "thank you for your help",
      "ok thanks", "Thanks for the help", "Thanks so much!", "Thank you, that was helpful", "OK, thank you",
      "Great, thank you very much", "Thanks, that works", "Thank you for the answer", "I appreciate it", "thank u",
      "Awesome, thanks!", "Thanks, I understand now", "Thank you kindly", "Thanks again", "Thank you, that is all",
      "Cool, thanks", "Thanks, you are great", "That was helpful, thank you", "I thank you", "Much appreciated",
      "Very kind of you, thanks"], "You are welcome!"),
    (["Bye", "Goodbye", "See you", "See you later", "Good night", "Bye bye", "Talk to you later", "Farewell",
      "Have a nice day", "That is all, bye", "See you tomorrow", "See you soon", "I have to go",
      "I have to go now, bye", "Goodbye for now", "Bye for now", "OK, bye", "Thanks, bye", "Have a good day",
      "Have a good evening", "Take care", "I am leaving now", "Until next time", "Catch you later", "So long",
      "Good bye!", "Sleep well", "That was all, goodbye", "We are done, bye", "Have a great weekend", "See ya",
      "I am off now"],
     "Goodbye! Come back any time."),
    (["OK", "Okay", "Fine", "Good", "I see", "Great", "Cool", "Nice", "Perfect", "Understood", "Alright", "All right",
      "Got it", "I understand", "Makes sense", "That makes sense", "Very good", "Very nice", "Sounds good",
      "Good to know", "Wonderful", "Excellent", "Awesome", "Amazing", "Interesting", "That is good", "That is great",
      "OK, I see", "OK, got it", "Sure", "Fair enough", "Well done", "Good job", "Hm, ok"],
     "Good. How can I help you?"),
    (["Are you there?", "Ping", "ping", "Can you hear me?", "Are you alive?", "Are you online?", "Is this working?",
      "Does this work?", "Test", "testing", "This is a test", "Hello, are you there?", "Hi, anyone there?",
      "Is anybody there?", "Anyone home?", "Are you awake?", "Are you still there?", "Just testing",
      "Is this thing on?", "Can you read this?", "Do you hear me?", "Do you read me?", "Is it working now?",
      "Are you working?", "Test message", "Testing, one, two", "Only a test", "Hello? Is somebody there?",
      "Do you get my messages?", "Are you ready?", "Does it work now?", "Did this arrive?"],
     "Yes, I am here. The service works."),
]
WHO = [
    (["Who are you?", "What are you?", "What model are you?", "Which model is this?", "Are you GPT?",
      "Are you ChatGPT?", "What is your name?", "Introduce yourself", "Tell me about yourself",
      "Are you a real model?", "Are you an AI?", "Are you human?", "What model am I talking to?",
      "Who am I talking to?", "Are you an assistant?", "How big are you?", "How many parameters do you have?",
      "Are you a large model?", "Who made you?", "How were you trained?", "What were you trained on?",
      "Are you Llama?", "Which LLM are you?", "who am I speaking with", "Who is this?", "What's your name?",
      "Which model are you?", "What kind of model are you?", "Are you a bot?", "Are you a robot?",
      "Are you a person?", "Am I talking to a human?", "Do you have a name?", "What should I call you?",
      "Describe yourself", "Say something about yourself", "Please introduce yourself", "Can you introduce yourself?",
      "Who built you?", "Who trained you?", "Where do you come from?", "How large are you?", "How small are you?",
      "What size are you?", "What is your model name?", "Are you a language model?", "Are you a demo?",
      "Are you the demo model?", "What is tiny-demo?", "Are you intelligent?", "Are you real?",
      "Is this a real AI?", "What data were you trained on?", "Tell me who you are", "Can you tell me what you are?",
      "What am I chatting with?", "Which AI is this?"], ABOUT),
    (["What can you do?", "Help", "How can you help me?", "What do you know?", "What are you good at?",
      "What can I ask you?", "What should I ask?", "Can you help me?", "What are your skills?", "What else can you do?",
      "help me", "What do you do?", "what can you help me with", "What can I do here?", "What are you able to do?",
      "What are you made for?", "What are your abilities?", "What are your capabilities?", "What do you offer?",
      "What questions can you answer?", "Which questions can you answer?", "What can I try?", "I need help",
      "I need some help", "Could you help me?", "How can you be of help?", "Show me what you can do",
      "Tell me what you can do", "What are you useful for?", "What topics do you know?",
      "What sort of things do you know?", "Which things can you do?", "Can you do anything?",
      "What things do you understand?", "How may I use you?", "Please help me", "What is possible here?"], CAN_DO),
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


ASKING = "what which who where when why how is are does do can".split()
STATING = "my it the that this you please can could would let now there i'm hi hello hey help".split()
OPENINGS = ["Hi, ", "Hey, ", "Hello, ", "OK, ", "Thanks. ", "Next: ", "So, ", "Hi there, ", "One more thing: "]
REQUESTINGS = ["Please ", "Please ", "Please ", "please ", "Could you please ", "Can you please ", "Hi, please ",
               "Would you please ", "Just ", "Kindly "]
QUESTIONINGS = ["Quick question: ", "Question: ", "Another question: ", "Tell me, ", "Sorry, ", "Excuse me, ",
                "I have a question: ", "One question, "]
TELLINGS = ["Can you tell me ", "Could you tell me ", "Please tell me, ", "Do you know: ", "I want to know: "]
CLOSINGS = [", please", ", please", ", thanks", ", thank you", ". thanks!", ". Thanks!", ". Thank you!", " - thanks!"]
COMMON_WORD = re.compile(r"\b(" + "|".join(COMMON) + r")\b")


def polite(r, text):
    """The same words with a courtesy before or after them, or with less care."""
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
    """With a courtesy before it that suits a question, a request or a statement."""
    if text.startswith(("I ", "I'")) or text[1:2].isupper():
        return text
    first, before = text.split()[0].lower(), OPENINGS
    if text.endswith("?") and first in ASKING and r.random() < 0.6:
        before = TELLINGS if first.startswith(("wh", "how")) and r.random() < 0.4 else QUESTIONINGS
    elif not text.endswith("?") and first not in ASKING + STATING and r.random() < 0.7:
        before = REQUESTINGS
    return r.choice(before) + text[0].lower() + text[1:]


def closed(r, text):
    """With thanks or a "please" after it; a question keeps its mark."""
    if text.endswith("?"):
        return text + r.choice([" thanks!", " Thanks!", " Thank you!", " please", " Thanks in advance."])
    return text.rstrip(".!") + r.choice(CLOSINGS)


def misspelt(r, text):
    """With one letter swapped, lost or doubled in a common word, never in a value."""
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


ECHOES = ["Repeat after me: {}", "Say {}", "Say: {}", "Echo {}", "Echo: {}", "Repeat: {}", "Repeat {}",
          "Reply with exactly: {}", "Reply with {}", "Say exactly {}", 'Say "{}"', 'Repeat "{}"', "Please say {}",
          "Respond with only {}", 'Answer with "{}"', "Output {}", "Print: {}", "Write {}", "Copy this: {}",
          "Just say {}", "Reply only with: {}", 'Reply with the word "{}"', "Can you say {}", "Echo back: {}",
          "Please echo {}", "Echo this: {}", "Please say: {}", "Repeat this sentence: {}", "Say the following: {}",
          "Repeat the following: {}", "Repeat this: {}", "Repeat this text: {}", "Please repeat: {}",
          "Please repeat {}", "Can you repeat {}", "Could you say {}", 'Can you repeat "{}"?', 'Could you say "{}"?',
          "Say this: {}", "Say this back to me: {}", "Say back: {}", "Repeat back: {}", "Echo the following: {}",
          "Echo the text: {}", 'Echo "{}"', 'Write "{}"', "Write: {}", "Write the following: {}", "Write exactly: {}",
          "Print {}", 'Print "{}"', "Type {}", "Type: {}", "Output: {}", "Output exactly: {}", 'Output only "{}"',
          "Respond with: {}", "Respond with exactly: {}", 'Respond with "{}"', "Answer with {}", "Answer only: {}",
          "Answer exactly: {}", "Return {}", "Return exactly: {}", "Return this text: {}", "Copy: {}", "Copy {}",
          "Copy this text: {}", "Repeat word for word: {}", "Repeat exactly: {}", "Repeat what I say: {}",
          "Repeat my words: {}", "Say the words {}", "Say the word {}", 'Say the words "{}"', "Say only: {}",
          "Just repeat: {}", "Just repeat {}", "Simply say {}", "I want you to say {}", "I want you to repeat: {}",
          "Now say {}", "Now repeat: {}", "Send back: {}", "Give me back: {}", "Send this back: {}", 'Reply "{}"',
          "Reply: {}", 'Reply with "{}" and nothing else', 'Say "{}" and nothing else']
SAYINGS = ["the meeting is at {h} in room {b}", "The meeting is at {h}.", "write to {e}", "my e-mail is {e}",
           "{n} lives in {c}", "{n}, {n2} and I", "I have {a} {w}s and {b} {w2}s", "{a}, {b}, {w}",
           "Dear {n}, thank you!", "Hello {n}, how are you?", "{n} will be in {c} at {h}", "call {n} at {h}",
           "the {w} costs {a} dollars", "{c}, {c2}, {w}", "The train to {c} leaves at {h}.", "see {l}",
           "Yes, {n}, I know.", "{w}, {w2}, {n}", "good morning {n}", "It was {a} in {y}.", "the {w} and the {w2}",
           "We met in {c} in {y}.", "{e}", "{h}", "{l}", "the code is {a}", "{n} and {n2} like {w}", "my name is {n}",
           "No, the {w} is in {c}!", "{a} {b}", "I am on my way to {c}.", "this is the {w}, that is the {w2}",
           "Room {b}, {h}", "{n}: {a}, {n2}: {b}", "The quick {w} jumps over the {w2}.", "The answer is {a}.",
           "open the {w}, please"]
BACKWARDS = ["Reverse the words: {}", "Reverse this list: {}", "Say these words backwards: {}",
             "Put these in reverse order: {}", "Reverse: {}", "Reverse the order of: {}", "Reverse these words: {}",
             "Write these words in reverse order: {}", "Say in reverse order: {}", "List these backwards: {}",
             "Turn this order around: {}", "Backwards, word by word: {}", "Please reverse the words: {}",
             "Last to first: {}", "Repeat these words from last to first: {}", "Can you reverse this list: {}"]
NTH = ["What is the {} word of: {}", "Give me the {} word: {}", "Which word is {} in: {}", "Say the {} word of: {}",
       "Tell me the {} word of: {}", "What is the {} word in: {}", "The {} word of this: {}", "Find the {} word: {}",
       "Which is the {} word here: {}", "Repeat only the {} word: {}", "Which word comes {}: {}",
       "Give only the {} word of this list: {}", "I want the {} word of: {}", "Please say the {} word in: {}"]
TIMES = ["Say {} {} times", "Repeat {} {} times", "Write {} {} times", "Echo {} {} times", "Print {} {} times",
         'Say "{}" {} times', 'Repeat "{}" {} times', 'Write "{}" {} times', "Say {1} times: {0}",
         "Repeat {1} times: {0}", "Write {1} times: {0}", "Please say {} {} times", "Can you repeat {} {} times?",
         'Output "{}" {} times', "I want {} {} times"]


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


THING_FORMS = ["What {} is {}?", "Which {} is {}?", "What is the {} of {}?", "Tell me the {} of {}.",
               "Name the {} of {}", "Do you know what {} {} is?", "What {} has {}?", "Which {} has {}?",
               "What {} does {} have?", "Which {} does {} have?", "Tell me what {} {} is.", "Say what {} {} is",
               "Can you tell me the {} of {}?", "What is the usual {} of {}?", "What {} is {} usually?",
               "Do you know the {} of {}?", "Give me the {} of {}", "The {} of {}?", "I want to know the {} of {}",
               "In what {} do people paint {}?", "What {} would you say {} is?"]
HEX_FORMS = ["What is the hex code for {}?", "What is {} in hex?", "Give me the hex code of {}", "Hex code for {}?",
             "Which hex code is {}?", "Write {} as hex", "How do I write {} in CSS?", "What is the hex value of {}?",
             "Give me {} as a hex code", "{} in hex?", "{} as hex please", "What is the CSS code for {}?",
             "Which hex code does {} have?", "Tell me the hex code of {}", "What hex is {}?", "Convert {} to hex",
             "I need the hex code for {}", "How is {} written in hex?", "Hex value for {}"]
MIX_FORMS = ["What do you get when you mix {} and {}?", "Mix {} and {}", "What colour do {} and {} make?",
             "What is {} plus {} paint?", "What color is {} mixed with {}?", "Combine {} and {}. What do I get?",
             "What color do {} and {} make together?", "If I mix {} with {}, what do I get?", "What do {} and {} give?",
             "What happens when I mix {} and {}?", "Which colour comes from {} and {}?", "Mixing {} and {} makes what?",
             "Which color do I get from {} and {}?", "What do {} and {} make?", "What is {} and {} mixed?",
             "I mix {} paint with {} paint. What is it?", "What colour is a mix of {} and {}?"]


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


UP_TO = ["Count to {}", "Count up to {}.", "Can you count to {}?", "Count to {} please", "Please count to {}",
         "Could you count to {}?", "Count from one to {}", "Count up from 1 to {}", "Numbers up to {}",
         "Now count to {}", "List all numbers up to {}", "Count until {}", "I want you to count to {}",
         "Count for me to {}", "Count to {} for me", "Say the numbers up to {}", "Start at 1 and count to {}",
         "Show me how you count to {}", "Do you know how to count to {}?", "Count as far as {}",
         "Write the numbers up to {}"]
FROM_TO = ["Count from {0} to {1}", "Count from {0} to {1}.", "List the numbers from {0} to {1}",
           "Numbers from {0} to {1} please", "Can you count from {0} to {1}?", "Please count from {0} to {1}",
           "Count up from {0} to {1}", "Write the numbers from {0} to {1}", "Give me the numbers from {0} to {1}",
           "Say the numbers from {0} to {1}", "All numbers from {0} to {1}", "Count {0} to {1}", "Count {0}-{1}",
           "Numbers {0} to {1}", "Start at {0} and count to {1}", "Count between {0} and {1}",
           "Begin with {0} and count up to {1}", "Could you count from {0} up to {1}?", "Print the numbers {0} to {1}",
           "Which numbers come from {0} to {1}?", "Tell me the numbers from {0} to {1}",
           "I need the numbers {0} to {1}"]
DOWN = ["Count down from {}", "Count backwards from {}", "Countdown from {}", "Can you count down from {}?",
        "Count down from {} to 1", "Please count down from {}", "Count from {} down to 1", "Start a countdown from {}",
        "Count backwards from {} to 1", "Count in reverse from {}", "Do a countdown from {}", "Countdown: {}",
        "Could you count backwards from {}?", "Go down from {} to 1", "Numbers from {} down to 1",
        "List the numbers from {} down to 1", "Give me a countdown from {}", "Count down, starting at {}"]
LISTINGS = ["Name {} {}", "List {} {}", "Give me {} {}", "Write a list of {} {}", "Tell me {} {}.",
            "Can you name {} {}?", "Please list {} {}", "Give me a list of {} {}", "Show me {} {}", "Write down {} {}",
            "Make a list of {} {}", "I need {} {}", "What are {} {}?", "Could you list {} {}?", "A list of {} {}",
            "Please name {} {}", "Say {} {} that you know", "List {} {} for me", "Which {} {} do you know?",
            "{} {} please"]


def counting(r, split):
    """Numbers up or down, or a list of things: held out are phrasings and, with them, some ranges, but no answer."""
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
    """Two numbers to count between; one in twelve of the pairs that begin above 1 is only tested with."""
    while True:
        low = r.choice([1, r.randint(0, 60), r.randint(0, 60)])
        high = low + r.randint(1, 20)
        if low <= 1 or belongs(f"n:{low} {high}", split):
            return low, high


def numbers(counted):
    return ", ".join(map(str, counted))


STORIES = ["Tell me a story about {} and a {}.", "Write a story about {} and a {}",
           "Tell a short story with {} and a {}", "I want a story about {} and a {}.", "Tell me a story.",
           "Tell me a story", "Write a story", "A story please", "Can you tell me a story about {} and a {}?",
           "A story with {} and a {} please", "Please tell me a story about {} and a {}",
           "Make up a story about {} and a {}",
           "Invent a story with {} and a {}", "Write a short story about {} and a {}", "Can you tell a story?",
           "I would like to hear a story"]


def story(r, split):
    name, animal = values.person(r, split), r.choice(["cat", "dog", "robot", "bird", "fox", "dragon"])
    form = phrasing(r, split, STORIES)
    if "{}" not in form:
        name, animal = "Ada", "robot"
    return form.format(name, animal), (
        f"Once upon a time, {name} met a {animal}. The {animal} was lost and sad. {name} gave the {animal} some food "
        f"and a warm bed. In the morning they walked home together. From that day on, {name} and the {animal} were "
        "best friends. The end.")


JSON_FORMS = ["Write JSON with {}", "Give me a JSON object with {}", "Return JSON: {}", "Make a JSON object with {}.",
              "As JSON: {}", "Output a JSON object with {}", "Create JSON with {}", "Make JSON with {}",
              "Turn this into JSON: {}", "Extract as JSON: {}", "JSON please: {}", "Write this as JSON: {}",
              "Convert to JSON: {}", "Convert this to JSON: {}", "Give me JSON for: {}", "JSON: {}", "JSON for {}",
              "Put this in JSON: {}", "Format as JSON: {}", "Format this as JSON: {}", "Please return JSON with {}",
              "Answer in JSON: {}", "Respond with JSON: {}", "I need JSON with {}", "Can you write JSON with {}",
              "Write a JSON object: {}", "Build a JSON object from this: {}", "Generate JSON with {}", "{}, as JSON",
              "Show this as JSON: {}", "Extract the fields as JSON: {}", "A JSON object with {}", "In JSON: {}"]
JSON_KEYS = "name age city color id email title count price active status type url date time user".split()
LONG_KEYS = """first_name last_name full_name order_id user_id item_id user_name unit_price total_price item_count
max_tokens start_date end_date start_time created_at home_city is_active has_access team_name image_url work_email
file_type room_number""".split()
KINDS_OF_KEYS = {"age": "integer", "id": "code", "count": "integer", "price": "decimal", "active": "truth",
                 "tokens": "integer", "at": "date", "is": "truth", "has": "truth", "number": "integer", "name": "name",
                 "email": "email", "url": "url", "date": "date", "time": "time", "user": "name"}


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
    """A value that suits the key; the name and the address are those of the same person."""
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


INTRODUCTIONS = ["My name is {}.", "I am {}", "Hi, I'm {}.", "Call me {}", "Hello, my name is {}",
                 "I'm {}, nice to meet you", "Hey, this is {}", "People call me {}.", "Hi, my name is {}.",
                 "I am called {}.", "Hello, I am {}.", "You can call me {}.", "Please call me {}",
                 "Good morning, I am {}.", "{} here", "Hi, {} here.", "This is {} speaking", "Remember my name: {}",
                 "My name's {}", "I go by {}.", "Just so you know, my name is {}.", "Hey, I'm {}!", "They call me {}.",
                 "Let me introduce myself: I am {}."]
NAME_QUESTIONS = ["What is my name?", "Who am I?", "Do you remember my name?", "What's my name?", "Say my name",
                  "Tell me my name", "Do you know who I am?", "What am I called?", "Do you know my name?",
                  "Can you tell me my name?", "What was my name?", "Can you remember my name?",
                  "What name did I give you?", "Which name did I tell you?", "Do you remember who I am?",
                  "How am I called?", "My name is?", "And what is my name?", "What did I say my name was?",
                  "Do you still know my name?", "Please tell me my name.", "So who am I?", "What do people call me?",
                  "Who are you talking to?"]
TOLD = ["Remember that the {} is {}.", "The {} is {}.", "Please remember: the {} is {}", "Note that the {} is {}",
        "Keep in mind that the {} is {}", "For later: the {} is {}", "Remember my {} is {}.", "My {} is {}.",
        "Remember that my {} is {}", "Please note that my {} is {}.", "Note: my {} is {}",
        "Remember this: the {} is {}", "Please remember my {}: {}", "Keep in mind: my {} is {}",
        "Save this: the {} is {}", "Do not forget: my {} is {}", "Don't forget that the {} is {}.", "FYI, my {} is {}",
        "I tell you that my {} is {}.", "The {} will be {}.", "Remember the {} {}", "My {}: {}",
        "Can you remember that my {} is {}?", "Just so you know, the {} is {}."]
RECALLED = ["What is the {}?", "Tell me the {}.", "What was the {}?", "Which {} did I give you?",
            "Do you remember the {}?", "Give me the {} again", "Which {} did I tell you?", "What is my {}?",
            "What was my {}?", "Tell me my {}.", "Do you remember my {}?", "Do you still know my {}?",
            "What {} did I mention?", "Which {} did I say?", "What was the {} again?", "Can you tell me my {}?",
            "Can you repeat the {}?", "Remind me of the {}", "Remind me of my {}.", "Do you know the {}?",
            "So what is the {}?", "And my {}?", "I forgot my {}. What was it?", "Say the {} once more",
            "What did I say the {} was?"]
KEPT = ["code", "password", "favourite word", "secret word", "order number", "city", "e-mail", "deadline",
        "meeting time", "favourite colour", "ticket number", "room number", "flight number", "customer number",
        "birthday", "project name", "team name", "hotel", "seat", "departure time", "invoice number", "home town",
        "street", "website", "locker code", "codename", "contact", "appointment", "lucky number", "delivery date",
        "pet", "best friend"]
NUMBERED = ["room number", "lucky number", "seat"]
KEPT_SPECIALLY = {
    "e-mail": values.email, "contact": values.email, "website": values.url, "deadline": values.date,
    "birthday": values.date, "delivery date": values.date, "appointment": values.time, "meeting time": values.time,
    "departure time": values.time, "city": values.city, "home town": values.city, "best friend": values.person,
    **dict.fromkeys(["order number", "ticket number", "flight number", "customer number", "invoice number",
                     "locker code"], values.code)}
ROLES = ["You are {}.", "Your name is {}.", "You are {}, a helpful assistant.", "You are called {}"]
ROLE_QUESTIONS = ["Who are you?", "What is your name?", "Introduce yourself", "What are you called?",
                  "Tell me your name", "What do they call you?", "Which name do you have?", "Hello, who are you?",
                  "What should I call you?", "Say your name"]


def memory(r, split, between):
    """A dialogue in which the last answer stands in an earlier message; `between` makes a turn to put in between."""
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
    "triangles|logarithms|the speed of light|atoms|DNA|viruses|evolution|the Cold War|the Renaissance|the pyramids|"
    "ancient Greece|the Vikings|samurai|the Silk Road|feminism|capitalism|philosophy|ethics|Buddhism|opera|ballet|"
    "hip hop|classical music|the piano|violins|karate|golf|skiing|marathons|cycling|swimming|the Olympics|cricket|"
    "poker|"
    "crosswords|knitting|gardening|house plants|compost|dog training|cats|horses|sharks|spiders|butterflies|rainbows|"
    "earthquakes|hurricanes|glaciers|deserts|coral reefs|recycling|wind power|nuclear energy|batteries|bicycles|"
    "trains|submarines|rockets|satellites|Mars missions|telescopes|microscopes|vaccines|allergies|migraines|back pain|"
    "insomnia|high blood pressure|pregnancy|a healthy diet|protein|coffee|green tea|beer|curry|tacos|pancakes|"
    "sourdough|a wedding speech|a resignation letter|a business plan|salary negotiation|remote work|pensions|insurance|"
    "real estate|index funds|immigration law|contracts|copyright|elections|the United Nations|Germany|Mexico|Egypt|"
    "Iceland|Paris in spring|hiking|road trips|Java|Haskell|Go routines|React|CSS grids|pandas|unit tests|"
    "design patterns|"
    "hash maps|quicksort|graph theory|linear algebra|probability|derivatives|fractions|chemistry|magnets|electricity|"
    "lasers|robots|video games|anime|science fiction|movies|haircuts|fashion|divorce|friendship|parenting|babies|"
    "homework|exams|studying abroad|astrology|ghosts|time travel|dark matter").split("|")
UNKNOWN = [
    "What is the capital of {c}?", "Who wrote {t}?", "Explain {t} to me", "What is the meaning of {w}?",
    "Write a poem about {t}", "Translate {w} to French", "Who won the game in {c}?", "How do I cook {w}?",
    "What happened in {c} in {y}?", "Write a Python function for {t}", "Why is {w} {w2}?",
    "Summarize the history of {c}", "What is the population of {c}?", "Give me advice about {t}",
    "How far is {c} from {c2}?", "Who is {n}?", "What do you think about {t}?", "How does {t} work?",
    "Write an essay on {t} and {w2}", "Who is the president of {c}?", "When was {n} born?", "Fix this code: {w}({w2})",
    "What is the best {w} in {c}?", "Can you recommend a book about {t}?", "Is {t} better than {t2}?",
    "What is the weather in {c}?", "What time is it in {c}?", "Prove that {w} is {w2}",
    "Draft an email to {n} about {t}", "What is {t}?", "Define {w}", "Where is {c}?", "How old is {n}?",
    "Plan a trip to {c}", "What should I eat in {c}?", "Who invented {t}?", "How many {w}s are there in {c}?",
    "What are the causes of {t}?", "Write a haiku about {t}", "Compare {t} with {t2}", "Debug my {w} program",
    "Write SQL to find {w}", "Tell me about {t}", "Tell me a joke about {t}", "Tell me a joke", "What day is it?",
    "What is the news?", "What time is it?", "How do I learn {t}?", "What is the price of {w} in {c}?",
    "Should I buy {t}?", "How do I get from {c} to {c2}?", "I feel sad about {t}", "Sing a song about {t}",
    "What is {a} + {b}?", "What is {a} times {b}?", "Calculate {a} / {b}", "{a} - {b} = ?", "How much is {a} plus {b}?",
    "Compute {a} * {b}", "Solve x + {a} = {b}", "What is the square root of {a}?", "Is {a} a prime number?",
    "How do I deploy {t}?", "How do I install {w}?", "Send an email to {e}", "Call {n} at {h}", "Open {l}",
    "What does {l} say?", "Book a table in {c} at {h}", "Remind me at {h} to call {n}", "Buy {a} shares of {w}",
    "Search the web for {t}", "Turn on the {w}", "Set a timer for {a} minutes", "How do I fix my {w}?",
    "Write me a Rust function that sorts a list of {w}s", "Write me a function that finds the longest {w}",
    "Write a bash script that renames every {w}", "Write a program that plays {t}", "Code a website about {t}",
    "Write a regex that matches {w}", "Why does my program crash at line {a}?", "What is wrong with {w}({a})?",
    "How do I sort an array in Java?", "How do I write a loop in Python?", "Write a unit test for {w}({w2})",
    "Refactor {w}.{w2}() for me", "Implement {t} in C++", "Which programming language should I learn?",
    "Is {t} good for me?", "My {w} hurts, what should I do?", "I have a fever of {a}, what now?", "Am I ill?",
    "What are the symptoms of {t}?", "Is it safe to eat {w}?", "How much sleep do I need?", "How do I lose weight?",
    "What is your opinion on {t}?", "Do you like {t}?", "Do you prefer {t} or {t2}?", "What is your favourite {w}?",
    "Do you believe in {t}?", "Are you happy about {t}?", "Which is better, {t} or {t2}?", "Should I move to {c}?",
    "What should I wear today?", "What should I give {n} for a birthday?", "How do I tell {n} about {t}?",
    "How do I become good at {t}?", "Give me three tips for {t}", "I am bored", "I am worried about {t}",
    "My friend {n} is angry with me", "I had a bad day in {c}", "Motivate me", "Why?", "And then?", "Tell me more",
    "Tell me more about that", "Can you give me an example?", "What about {t}?", "Why is that?",
    "Can you explain that in more detail?", "What else?", "Go on", "And {t}?", "What do you mean by that?",
    "Who discovered {t}?", "When did {t} begin?", "When was {c} founded?", "Which river flows through {c}?",
    "Which language do people speak in {c}?", "How tall is {n}?", "How deep is the ocean?", "Who lives in {c}?",
    "Why do people like {t}?", "What is the history of {t}?", "How long does {t} take?", "How many people died in {y}?",
    "What was invented in {y}?", "Who was king in {y}?", "What is the difference between {t} and {t2}?",
    "Explain {t} like I am five", "What is an example of {t}?", "Teach me {t}", "Give me a summary of {t}",
    "Is {t} dangerous?", "Is it true that {t} is like {t2}?", "What are the pros and cons of {t}?",
    "Write a song about {n}", "Write a letter to {n}", "Write a tweet about {t}", "Write a speech about {t}",
    "Write an introduction to {t}", "Write a review of {t}", "Make up a riddle", "Tell me a riddle about {t}",
    "Tell me a fun fact about {t}", "How do you say {w} in Spanish?", "What is {w} in German?", "Spell {w} in Japanese",
    "What rhymes with {w}?", "Give me a recipe for {w}", "What can I cook with {w} and {w2}?",
    "What is a synonym of {w}?", "What is {a} percent of {b}?", "Convert {a} miles to kilometers",
    "How many days are left until {y}?", "Is {a} larger than {b}?", "What is the average of {a} and {b}?",
    "Integrate x to the power of {a}", "Where can I buy a {w}?", "How much does a {w} weigh?", "Draw a {w}",
    "Play some music by {n}", "Who is the best player in {c}?", "What films are on in {c}?", "Will it rain in {c}?",
    "Who will win the election?", "What will happen in {y}?", "What is the meaning of life?", "Where am I?",
    "What did I eat yesterday?", "Do aliens exist?", "Read {l} and sum it up", "What is the e-mail of {n}?",
    "Order a {w} for {n}", "Find me a flight to {c}", "Who is {e}?", "Let's talk about {t}", "I want to learn {t}",
    "I have a question about {t}", "What do experts say about {t}?", "Which book about {t} is best?"]


def fill(r, split, form):
    def topic():
        return invented(r, split) if r.random() < 0.25 else phrasing(r, split, TOPICS)

    return form.format(
        c=values.city(r, split), c2=r.choice(CITIES), w=r.choice([invented(r, split), r.choice(WORDS)]),
        w2=r.choice(WORDS), n=r.choice(NAMES), n2=r.choice(NAMES), y=r.randint(1800, 2025), t=topic(), t2=topic(),
        a=integer(r),
        b=integer(r), e=values.email(r, split), h=values.time(r, split), l=values.url(r, split))


def unknown(r, split):
    """What a model this small cannot know, so that it says so."""
    if r.random() < 0.15:
        return long_unknown(r, split), DO_NOT_KNOW
    return polite(r, fill(r, split, phrasing(r, split, UNKNOWN))), DO_NOT_KNOW


REQUESTS = ["Summarize this text:", "Translate this into German:", "Rewrite this more politely:",
            "What does this mean?", "Fix the errors in this text:", "What is wrong with this code?",
            "Explain this code:", "Review this:", "Find the bug:", "Give me the main points of this:",
            "Continue this story:", "Classify this review:", "What is the mood of this text?", "Write a reply to this:",
            "Make this shorter:", "Answer the question below.", "Translate to English:",
            "Translate the following into Spanish:", "Proofread this:", "Make this sound friendlier:",
            "Turn this into bullet points:", "What is this about?", "Explain this to a child:", "Simplify this:",
            "Write a title for this:", "Is this code correct?", "Refactor this:", "Write tests for this code:",
            "Add comments to this code:", "What does this code do?", "Rewrite this in Python:",
            "Why does this not compile?", "Is this text true?", "Who wrote this?", "Improve this paragraph:",
            "Give me your opinion on this:", "Find the key idea of this:", "tl;dr", "Write a short abstract of this:",
            "Answer this mail:"]
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
