"""Tools, requests that call them, their results, and what is said about the results."""

import json

import values
from talk import fill
from values import TRAIN, WORDS, belongs, decimal, integer, invented, phrasing, sentence, words

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
    "channel": words, "playlist": words, "door": words, "coupon": values.code, "code": values.code,
    "author": values.person,
    "country": values.city, "street": words, "folder": values.path, "file": values.path, "brand": words, "color": words,
    "account": values.code, "customer": values.person, "employee": values.person, "comment": sentence, "note": sentence,
    "reason": sentence, "body": sentence, "address": words, "destination": values.city, "origin": values.city,
    "table": values.invented, "column": values.invented, "keyword": words, "genre": words, "username": values.invented,
    "year": integer, "volume": integer, "score": integer, "rating": integer, "seats": integer, "port": integer,
    "distance": decimal, "weight": decimal, "duration": integer, "max_results": integer, "shuffle": bool,
    "enabled": bool, "notify": bool, "end": values.time, "due": values.date, "deadline": values.date,
    "from_date": values.date, "website": values.url, "version": decimal, "speed": decimal, "guests": integer,
    "format": ["json", "csv", "pdf"], "size": ["small", "medium", "large"], "currency": ["USD", "EUR", "GBP", "JPY"],
    "tags": list, "names": list}
READING = ("get", "find", "check", "show", "fetch", "read")

MONEY = ["USD", "EUR", "GBP", "JPY", "CHF"]


def expression(r, _split):
    """A small sum, as somebody types it."""
    parts = [str(integer(r)) for _ in range(r.choice([2, 2, 2, 3]))]
    sign = r.choice([" + ", " - ", " * ", " / ", "+", "*"])
    return sign.join(parts)


def thing(r, split):
    """One thing that one points at, in a word or two."""
    return " ".join(r.choice([r.choice(WORDS), r.choice(WORDS), invented(r, split)]) for _ in range(r.choice([1, 1,
    2])))


def ticker(r, split):
    """A name of shares."""
    if r.random() < 0.5:
        return words(r, split)
    return "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(r.randint(2, 4)))


# (verbs of the name, nouns of the name, descriptions, parameters, requests). Other words for the parameters are drawn.
REAL = [
    (["get", "fetch", "current", "check", "read"], ["weather", "forecast"],
     ["Get the current weather in a city", "Get the weather", "Get current temperature for a given location.",
      "Returns the weather of a place"],
     {"city": values.city, "days": integer, "unit": ["celsius", "fahrenheit"]},
     ["What is the weather in {city}?", "How is the weather in {city} today?", "Will it rain in {city}?",
      "Weather in {city} please", "Is it cold in {city}?", "What is the weather like in {city}?",
      "What is the weather in {city} for {days} days?", "Forecast for {city} for the next {days} days",
      "Do I need an umbrella in {city}?", "Is it sunny in {city}?", "How hot is it in {city} in {unit}?",
      "What is the temperature in {city} in {unit}?", "Weather in {city}, in {unit}",
      "What's the weather like in {city} today?", "What's the weather in {city} right now?", "{city} weather",
      "Is it going to rain in {city} tomorrow?", "Will it be warm in {city} tomorrow?", "Is it raining in {city}?",
      "How warm is it in {city} now?", "Will {city} be cloudy this weekend?", "I travel to {city}, how is the weather?",
      "Give me the weather for {city} in {unit}", "What's the weather like in {city}, in {unit}?",
      "Should I take a coat to {city}?", "Does it snow in {city} today?", "How windy is {city} today?",
      "Tell me the forecast of {city} for {days} days, in {unit}",
      "Check whether the sun shines in {city}", "How many degrees is it in {city}?"]),
    (["get", "current", "show"], ["time", "clock"], ["Get the current time in a city", "Tells the local time"],
     {"city": values.city},
     ["What time is it in {city}?", "What is the time in {city}?", "How late is it in {city}?",
      "Tell me the time in {city}", "Current time in {city}?", "What is the local time in {city}?",
      "What time is it now in {city}?", "What's the time in {city} right now?", "Is it morning in {city}?",
      "Time in {city} please", "{city} time?", "Which hour is it in {city}?", "Do they sleep in {city} now?",
      "Show me the clock of {city}", "What does the clock say in {city}?"]),
    (["send", "write"], ["email", "mail"], ["Send an e-mail", "Send an email to a recipient",
     "Sends mail for the user"],
     {"to": values.email, "subject": sentence, "body": sentence},
     ["Send an email to {to} about {subject}", "Email {to} with the subject {subject}", "Write to {to} about {subject}",
      "Send {to} an email with subject {subject}", "Send an email to {to}", "Mail {to} about {subject}",
      "Write an email to {to}", "Email {to} about {subject}", "Send a mail to {to} with the subject {subject}",
      "Email {to} and say {body}", "Write {to} an email that says {body}", "Drop {to} a line about {subject}",
      "Let {to} know by email: {body}", "Send mail to {to}, subject {subject}, body {body}",
      "Email to {to}, subject: {subject}", "Tell {to} by mail that {body}"]),
    (["search", "query", "browse"], ["web", "internet"], ["Search the web", "Finds pages on the web"], {"query": words},
     ["Search the web for {query}", "Look up {query}", "Search for {query}", "Find {query} on the web",
      "Google {query}", "Find information about {query}", "Search {query}", "Do a web search for {query}",
      "What does the web say about {query}?", "Look for {query} online", "Find out about {query}",
      "I want to know more about {query}", "See what the internet has on {query}", "Search online for {query}"]),
    (["search", "find", "query"], ["products", "shop", "catalog"], ["Search the products of the shop", "Find products"],
     {"query": words, "limit": integer},
     ["Find {query} in the shop", "Do you sell {query}?", "Search products for {query}", "Is {query} in stock?",
      "Show me {limit} products for {query}", "I want to buy {query}", "What {query} do you have?",
      "List {limit} results for {query}", "I am looking for {query}", "Search the catalog for {query}",
      "Which products match {query}?", "Have you got {query}?"]),
    (["convert", "exchange"], ["currency", "money"], ["Convert money", "Convert an amount to another currency"],
     {"amount": decimal, "currency": ["USD", "EUR", "GBP"]},
     ["Convert {amount} to {currency}", "How much is {amount} in {currency}?", "What is {amount} in {currency}?",
      "Change {amount} into {currency}", "Exchange {amount} for {currency}", "{amount} in {currency}?",
      "I have {amount}, what is that in {currency}?", "Turn {amount} into {currency}", "{amount} to {currency}",
      "How many {currency} do I get for {amount}?", "Give me {amount} in {currency}",
      "What would {amount} be in {currency}?"]),
    (["convert", "exchange"], ["money", "currencies"], ["Convert money from one currency to another"],
     {"amount": decimal, "from_currency": MONEY, "to_currency": MONEY},
     ["Convert {amount} {from_currency} to {to_currency}", "How much is {amount} {from_currency} in {to_currency}?",
     "What is {amount} {from_currency} in {to_currency}?",
      "Change {amount} {from_currency} into {to_currency}", "{amount} {from_currency} to {to_currency}",
      "How many {to_currency} are {amount} {from_currency}?",
      "I have {amount} {from_currency} and want {to_currency}",
      "Exchange {amount} {from_currency} for {to_currency}", "{amount} {from_currency} in {to_currency}?",
      "Turn {amount} {from_currency} into {to_currency}",
      "What do I get in {to_currency} for {amount} {from_currency}?"]),
    (["set", "switch", "control", "turn", "toggle"], ["lights", "light", "lamp"],
     ["Turn the lights of a room on or off", "Control the lights"], {"room": values.room, "on": bool},
     ["Turn {on} the lights in the {room}", "Turn the {room} lights {on}", "Switch {on} the light in the {room}",
      "Lights {on} in the {room}", "Please turn {on} the {room} light", "Switch the lights in the {room} {on}",
      "Set the lights in the {room} to {on}", "I want the light in the {room} {on}", "{room} lights {on}",
      "Make sure that the {room} lights are {on}", "Turn {on} the lamp in the {room}",
      "Turn the light in the {room} {on}",
      "The {room} light should be {on}", "Could you switch the {room} light {on}?", "Light in the {room} {on} please"]),
    (["add", "sum"], ["numbers"], ["Add two numbers", "Adds a and b"], {"a": integer, "b": integer},
     ["What is {a} + {b}?", "Add {a} and {b}", "What is {a} plus {b}?", "{a} + {b}", "How much is {a} and {b}?",
      "Sum {a} and {b}", "Compute {a} + {b}", "{a} plus {b}", "Calculate {a} + {b}", "What's {a}+{b}?", "{a}+{b}=?",
      "What do {a} and {b} make together?", "Add {b} to {a}", "The sum of {a} and {b}"]),
    (["multiply"], ["numbers"], ["Multiply two numbers", "Multiplies a by b"], {"a": integer, "b": integer},
     ["What is {a} * {b}?", "Multiply {a} by {b}", "What is {a} times {b}?", "{a} * {b}", "How much is {a} times {b}?",
      "Multiply {a} and {b}", "Compute {a} * {b}", "{a} times {b}", "Calculate {a} * {b}", "What's {a} x {b}?",
      "{a}*{b}=?", "The product of {a} and {b}"]),
    (["calculate", "evaluate", "compute"], ["numbers", "expression"], ["Evaluate an arithmetic expression",
     "A calculator"],
     {"expression": expression},
     ["What is {expression}?", "Calculate {expression}", "Compute {expression}", "{expression}", "{expression} = ?",
      "How much is {expression}?", "Solve {expression}", "Work out {expression}", "Evaluate {expression}",
      "What's {expression}?", "Give me the result of {expression}", "What does {expression} give?"]),
    (["create", "add", "book", "schedule"], ["event", "meeting", "appointment"],
     ["Add an event to the calendar", "Create a calendar event"],
     {"title": words, "date": values.date, "time": values.time},
     ["Book a meeting about {title} on {date} at {time}", "Add {title} to my calendar on {date} at {time}",
      "Schedule {title} for {date} at {time}", "Create an event {title} on {date}",
      "Meeting {title} on {date} at {time}", "Put {title} in my calendar for {date}, {time}",
      "Plan {title} on {date} at {time}", "I have {title} on {date} at {time}, note it in the calendar",
      "Arrange a meeting {title} at {time} on {date}", "New event: {title}, {date}, {time}",
      "Set up {title} for {date}", "On {date} at {time} there is {title}", "Event {title} at {time} on {date}"]),
    (["book", "reserve"], ["table", "restaurant"], ["Book a table", "Reserve a table at a restaurant"],
     {"restaurant": words, "people": integer, "time": values.time},
     ["Book a table for {people} at {restaurant} at {time}", "Reserve a table at {restaurant} for {people} people",
      "Table for {people} at {restaurant}, {time}", "Get me a table at {restaurant} for {people} at {time}",
      "We are {people} and want to eat at {restaurant} at {time}", "I would like a table for {people} at {restaurant}",
      "Dinner for {people} at {restaurant}, {time}", "A table at {restaurant} at {time} for {people}",
      "Can you book {restaurant} for {people} people at {time}?", "Reserve {restaurant} for {people} at {time}",
      "Make a reservation at {restaurant} for {people}", "Lunch at {restaurant} at {time} for {people} people"]),
    (["translate"], ["text", "words", "sentence"], ["Translate a text", "Translates text to another language"],
     {"text": sentence, "language": ["French", "German", "Spanish", "Italian", "Japanese"]},
     ["Translate {text} to {language}", "Translate {text} into {language}", "What is {text} in {language}?",
      "Say {text} in {language}", "How do you say {text} in {language}?", "Put {text} into {language}",
      "{text} in {language}", "I need {text} in {language}", "Give me {text} in {language}",
      'Translate "{text}" to {language}',
      "What does {text} mean in {language}?", "How would one say {text} in {language}?", "Write {text} in {language}"]),
    (["get", "track", "find", "lookup"], ["order", "package", "shipment"],
     ["Find out where an order is", "Look up an order", "Get the status of an order"], {"order_id": values.code},
     ["Where is my order {order_id}?", "Track order {order_id}", "What is the status of order {order_id}?",
      "Has {order_id} been shipped?", "When does order {order_id} arrive?", "Check on package {order_id}",
      "My order {order_id} has not come", "Where is {order_id}?", "Status of {order_id}",
      "Is order {order_id} on its way?",
      "I am waiting for order {order_id}", "What happened to order {order_id}?", "Can you check order {order_id}?",
      "Order {order_id}: where is it now?", "Did you send {order_id}?", "I ordered {order_id}, when will I get it?"]),
    (["cancel", "refund", "return"], ["order", "purchase"], ["Cancel an order", "Refund an order"],
     {"order_id": values.code, "reason": sentence},
     ["Cancel order {order_id}", "Cancel my order {order_id} please", "I do not want order {order_id} any more",
      "Refund {order_id}", "I want my money back for {order_id}", "Cancel {order_id} because {reason}",
      "Return order {order_id}, reason: {reason}", "Stop order {order_id}", "Give me a refund for order {order_id}",
      "Please take back {order_id} because {reason}", "Order {order_id} has to be cancelled"]),
    (["play", "start"], ["music", "song", "track"], ["Play music", "Plays a song"],
     {"song": words, "artist": values.person},
     ["Play {song} by {artist}", "Play {song}", "Put on {song} by {artist}", "I want to hear {song}",
      "Start playing {song} by {artist}", "I want to listen to {song}", "I would like to hear {song} by {artist}",
      "Let me hear {song}", "Can you play {song} by {artist}?", "Some {song} please", "Music: {song}", "Start {song}",
      "Turn on {song} by {artist}", "Listen to {song} by {artist}"]),
    (["set", "start", "create"], ["timer", "alarm", "countdown"], ["Set a timer", "Starts a timer"],
     {"minutes": integer},
     ["Set a timer for {minutes} minutes", "Wake me in {minutes} minutes", "Timer for {minutes} minutes",
      "Start a timer of {minutes} minutes", "Remind me in {minutes} minutes", "{minutes} minute timer",
      "Ring in {minutes} minutes", "Count down {minutes} minutes", "Let me know in {minutes} minutes",
      "Tell me when {minutes} minutes are over", "I need a timer for {minutes} minutes", "Give me {minutes} minutes"]),
    (["set", "add", "create"], ["reminder"], ["Set a reminder", "Remind the user of something"],
     {"text": sentence, "time": values.time},
     ["Remind me at {time} of {text}", "Remind me to {text} at {time}", "At {time} remind me: {text}",
      "Set a reminder for {time}: {text}", "Do not let me forget {text}", "I must not forget {text} at {time}",
      "Reminder: {text}, {time}", "Remind me about {text}", "Make me think of {text} at {time}",
      "Ping me at {time} about {text}"]),
    (["open", "fetch", "read", "get"], ["page", "url", "website"], ["Read a web page", "Fetch a URL"],
     {"url": values.url},
     ["Open {url}", "What does {url} say?", "Read {url}", "Fetch {url}", "Summarize {url}", "Show me the page {url}",
      "Go to {url}", "What is on {url}?", "Load {url}", "Visit {url}", "Have a look at {url}", "Look at {url}",
      "Get me the page {url}", "What do they write on {url}?", "Browse {url}", "{url}"]),
    (["get", "find", "lookup"], ["user", "customer"], ["Find a user by e-mail", "Look up a customer"],
     {"email": values.email},
     ["Who is {email}?", "Find the user {email}", "Look up {email}", "Which user has the email {email}?",
      "Show me the customer {email}", "Is {email} a customer?", "Do we know {email}?", "Get the account of {email}",
      "Find {email}", "Search for the user {email}", "What do we know about {email}?", "Whose address is {email}?",
      "Customer with the address {email}", "Give me the data of {email}"]),
    (["create", "add", "register"], ["user", "customer", "contact"], ["Add a user", "Create a contact"],
     {"name": values.person, "email": values.email},
     ["Add {name} with the email {email}", "Create a user {name}, {email}", "Register {name} ({email})",
      "New contact: {name}, {email}", "Save {name} with {email}", "{name} has the address {email}, add the contact",
      "Sign up {name} with {email}", "Please add the customer {name}, email {email}",
      "Make an account for {name}, {email}",
      "Put {name} in my contacts, {email}"]),
    (["create", "send", "make"], ["invoice", "bill"], ["Send an invoice to a customer", "Create an invoice"],
     {"email": values.email, "amount": decimal, "due": values.date},
     ["Send an invoice of {amount} to {email}", "Invoice {email} for {amount}", "Bill {email} {amount}",
      "Send an invoice of {amount} to {email}, due {due}", "Create an invoice over {amount} for {email}",
      "{email} owes us {amount}, send an invoice", "Charge {email} {amount} by {due}",
      "Invoice for {email}: {amount}, due {due}",
      "Make a bill of {amount} for {email}", "Please bill {amount} to {email}, due on {due}",
      "Write an invoice to {email} for {amount} until {due}"]),
    (["send", "transfer", "pay"], ["money", "payment"], ["Send money to somebody", "Transfer money"],
     {"to": values.person, "amount": decimal},
     ["Send {amount} to {to}", "Pay {to} {amount}", "Transfer {amount} to {to}", "Give {to} {amount}",
      "I owe {to} {amount}, pay it", "Send {to} {amount} please", "Pay {amount} to {to}", "Let {to} have {amount}",
      "Wire {amount} to {to}", "{to} gets {amount} from me"]),
    (["send", "write", "post"], ["message", "sms", "text"], ["Send a message to somebody", "Send a text message"],
     {"to": values.person, "message": sentence},
     ["Tell {to} {message}", "Text {to} {message}", "Message {to}: {message}", "Send {to} the message {message}",
      "Send a message to {to}: {message}", "Let {to} know that {message}", "Write {to} that {message}",
      "Say {message} to {to}", "Send {message} to {to}", "Text {to} that {message}", "A message for {to}: {message}"]),
    (["call", "phone", "dial"], ["contact", "person"], ["Call somebody on the phone"], {"name": values.person},
     ["Call {name}", "Phone {name}", "Ring {name}", "I want to talk to {name}", "Give {name} a call", "Dial {name}",
      "Please call {name}", "Get {name} on the phone", "Can you call {name}?", "Connect me with {name}"]),
    (["get", "check"], ["stock", "quote", "shares"], ["Get the price of a stock", "Get a stock quote"],
     {"symbol": ticker},
     ["What is the stock price of {symbol}?", "How is {symbol} doing on the stock market?", "Price of {symbol} shares?",
      "What does a share of {symbol} cost?", "Get me a quote for {symbol}", "How much is {symbol} stock?",
      "{symbol} stock price", "What is {symbol} trading at?", "How are {symbol} shares?", "Stock price of {symbol}",
      "Is {symbol} up today?", "Quote {symbol}", "Check {symbol} on the stock market", "What's {symbol} worth?"]),
    (["create", "open", "file"], ["ticket", "issue", "bug"], ["Open a ticket", "Create a support ticket"],
     {"title": sentence, "priority": ["low", "normal", "high"]},
     ["Open a ticket about {title} with {priority} priority", "Create a {priority} priority ticket: {title}",
      "File an issue: {title}", "New ticket {title}, priority {priority}", "Report that {title}",
      "Open a ticket: {title}",
      "Ticket: {title}", "There is a problem: {title}", "Something is broken: {title}", "Log an issue about {title}",
      "Please file {title} with priority {priority}", "Report {title} as {priority} priority",
      "A bug, {priority} priority: {title}"]),
    (["set", "change"], ["temperature", "heating", "thermostat"], ["Set the temperature of a room", "Heat a room"],
     {"room": values.room, "degrees": decimal},
     ["Set the {room} to {degrees} degrees", "Make it {degrees} degrees in the {room}", "Heat the {room} to {degrees}",
      "Temperature in {room} to {degrees} please", "I want {degrees} degrees in the {room}",
      "{degrees} degrees in the {room}",
      "Bring the {room} to {degrees} degrees", "The {room} should have {degrees} degrees",
      "Warm the {room} to {degrees}",
      "Turn the heating in the {room} to {degrees}", "Cool the {room} down to {degrees} degrees",
      "{room} to {degrees}"]),
    (["find", "search", "book"], ["hotel", "flight", "room"], ["Find a hotel or a flight", "Search for travel"],
     {"city": values.city, "date": values.date},
     ["Find me something in {city} on {date}", "I need a room in {city} on {date}", "I travel to {city} on {date}",
      "Search for {city} on {date}", "I want to go to {city} on {date}", "Something in {city} for {date}",
      "I will be in {city} on {date}", "Get me to {city} on {date}", "A stay in {city}, {date}", "{city}, {date}",
      "What is there in {city} on {date}?", "On {date} I am in {city}, find me something", "Book {city} for {date}"]),
    (["get", "find", "plan"], ["route", "directions"], ["Get directions", "Find the way between two places"],
     {"origin": values.city, "destination": values.city},
     ["How do I get from {origin} to {destination}?", "Directions from {origin} to {destination}",
     "Route from {origin} to {destination}",
      "I want to drive from {origin} to {destination}", "The way from {origin} to {destination}",
      "Find a route from {origin} to {destination}",
      "Show me the way from {origin} to {destination}", "Take me from {origin} to {destination}",
      "From {origin} to {destination} please",
      "Which road goes from {origin} to {destination}?", "Navigate from {origin} to {destination}"]),
    (["add", "create", "write"], ["todo", "task", "note"], ["Add a task to the list", "Save a note"],
     {"text": sentence},
     ["Add {text} to my list", "Note: {text}", "Write down {text}", "Put {text} on the list", "Take a note: {text}",
      "New task: {text}", "Note that {text}", "Add the task {text}", "Todo: {text}",
      "Save this note: {text}", "Make a note of {text}"]),
    (["read", "open", "show", "get"], ["file", "document"], ["Read a file", "Show what is in a file"],
     {"path": values.path},
     ["Read {path}", "Open {path}", "What is in {path}?", "Show me {path}", "Show the file {path}", "Print {path}",
      "What does {path} contain?", "Let me see {path}", "Cat {path}", "Give me the content of {path}",
      "Load the file {path}", "Look into {path}"]),
    (["run", "execute"], ["sql", "query"], ["Count the rows of a table", "Query a table of the database"],
     {"table": values.invented, "limit": integer},
     ["Show {limit} rows of {table}", "Get {limit} rows from {table}", "What is in the table {table}?",
      "Select from {table}, {limit} rows", "Query {table}", "The first {limit} rows of {table}", "List {table}",
      "Read {limit} lines of the table {table}", "How many rows are in {table}?", "Look into the table {table}"]),
    (["get", "read", "todays"], ["news", "headlines"], ["Get the news about a topic", "Latest headlines"],
     {"topic": words},
     ["What is the news about {topic}?", "News about {topic}", "Headlines on {topic}",
     "What happened with {topic} today?",
      "Show me the news on {topic}", "Anything new about {topic}?", "Latest on {topic}",
      "Read me the news about {topic}",
      "What do the papers say about {topic}?", "Get me headlines about {topic}", "What is new in {topic}?"]),
    (["get", "read"], ["horoscope"], ["Get today's horoscope for an astrological sign."],
     {"sign": ["Aries", "Taurus", "Gemini", "Cancer", "Leo", "Virgo", "Libra", "Aquarius", "Pisces"]},
     ["What is my horoscope? I am a {sign}.", "Horoscope for {sign}", "I am a {sign}, what do the stars say?",
      "What do the stars say for {sign}?", "My sign is {sign}. What is my horoscope?",
      "Tell me the horoscope of {sign}",
      "{sign} horoscope please", "How is today for {sign}?", "I'm {sign}. Horoscope?", "Read the stars for {sign}"]),
    (["lock", "close"], ["door", "gate"], ["Lock a door", "Close a door"], {"door": thing},
     ["Lock the {door}", "Close the {door}", "Please lock the {door}", "Is the {door} locked? If not, lock it.",
      "Make sure that the {door} is locked", "Shut the {door}", "The {door} must be locked", "Lock up the {door}",
      "Could you close the {door}?", "I forgot to lock the {door}"]),
    (["add", "put"], ["cart", "basket", "item"], ["Add an item to the cart", "Put something into the basket"],
     {"item": thing, "quantity": integer},
     ["Add {quantity} {item} to my cart", "Put {quantity} {item} in the basket", "I want {quantity} {item}",
      "Add {item} to the cart", "{quantity} {item} please", "I would like to order {quantity} {item}",
      "Put {item} in my cart", "Buy {quantity} {item}", "Give me {quantity} of {item}", "{quantity} times {item}",
      "Add {quantity} more {item}", "I take {quantity} {item}", "My cart needs {quantity} {item}"]),
    (["apply", "use", "redeem"], ["coupon", "voucher"], ["Apply a coupon code", "Redeem a voucher"]
     , {"code": values.code},
     ["Apply the coupon {code}", "Use the code {code}", "I have a voucher {code}", "My coupon is {code}",
      "Redeem {code}", "Take {code} as the coupon", "The voucher code is {code}", "Please apply {code}",
      "Use coupon {code}", "Can I use {code}?", "Enter the code {code}"]),
    (["play", "start"], ["playlist", "album"], ["Play a playlist", "Play an album"]
     , {"playlist": words, "shuffle": bool},
     ["Play the playlist {playlist}", "Play my {playlist} playlist", "Start the playlist {playlist}",
      "Put on the {playlist} playlist", "I want to hear the playlist {playlist}", "Playlist {playlist} please",
      "Play the album {playlist}", "Start my playlist {playlist}", "Turn on my {playlist} playlist",
      "Play {playlist} from my playlists"]),
    (["get", "find", "lookup"], ["employee", "person", "colleague"], ["Look up an employee by name", "Find a person"],
     {"name": values.person},
     ["Who is {name}?", "Find {name}", "Look up {name}", "Tell me about {name}", "Does {name} work here?",
      "Show me the employee {name}", "Which department is {name} in?", "I am looking for {name}", "Search for {name}",
      "What does {name} do?", "Find the colleague {name}", "How can I reach {name}?", "Get me the data of {name}"]),
    (["search", "find"], ["documents", "files", "notes"], ["Search the company's documents", "Search in the files"],
     {"query": words, "limit": integer},
     ["Find documents about {query}", "Search the documents for {query}", "Documents about {query}",
      "Find {limit} documents about {query}", "Search the documents for {query}, at most {limit}",
      "Which documents mention {query}?", "Where is the document about {query}?", "Look for {query} in the files",
      "Do we have a document on {query}?", "Show me documents on {query}", "Find files about {query}",
      "I need the papers on {query}", "Is there a document about {query}?", "Search our notes for {query}"]),
    (["send", "post", "write"], ["channel", "chat"], ["Send a message to a channel", "Post to a chat room"],
     {"channel": thing, "message": sentence},
     ["Tell {channel} that {message}", "Post {message} in {channel}"
     , "Send the message {message} to the channel {channel}",
      "Write {message} to {channel}", "Post to {channel}: {message}", "Say {message} in the channel {channel}",
      "Message the channel {channel}: {message}", "Let {channel} know that {message}", "In {channel} write {message}",
      "Send {message} to #{channel}", "Announce in {channel} that {message}", "Channel {channel}: {message}"]),
    (["delete", "remove"], ["record", "entry", "item"], ["Delete a record by its id"], {"id": values.code},
     ["Delete the record {id}", "Remove {id}", "Delete {id}", "Record {id} can go", "Please delete the entry {id}",
      "Get rid of {id}", "Erase {id}", "Throw away the record {id}", "I do not need {id} any more"
      , "Delete number {id}"]),
    (["set", "change"], ["volume", "sound"], ["Set the volume"], {"level": integer},
     ["Set the volume to {level}", "Volume {level}", "Make it {level} loud", "Turn the volume to {level}",
      "Turn the sound to {level} percent", "Change the volume to {level}", "Sound at {level}", "I want volume {level}",
      "Put the volume at {level}", "Louder, {level}"]),
    (["assign", "give"], ["task", "ticket"], ["Assign a ticket to somebody"]
     , {"ticket": values.code, "person": values.person},
     ["Assign {ticket} to {person}", "Give {ticket} to {person}", "{person} takes {ticket}", "Let {person} do {ticket}",
      "Ticket {ticket} goes to {person}", "{person} should work on {ticket}", "Put {person} on {ticket}",
      "Hand {ticket} to {person}",
      "Make {person} the owner of {ticket}", "Please assign the ticket {ticket} to {person}"]),
    (["rate", "review"], ["film", "product", "book"], ["Rate something with stars"], {"title": words, "stars": integer},
     ["Rate {title} with {stars} stars", "Give {title} {stars} stars", "{stars} stars for {title}",
      "I would give {title} {stars} stars", "My rating of {title} is {stars}", "{title} gets {stars} stars",
      "{title}: {stars} stars", "Review {title} with {stars}", "Put {stars} stars on {title}"
      , "{title} was worth {stars} stars"]),
    (["get", "list", "show"], ["files", "folder", "directory"], ["List the files in a folder"], {"folder": values.path},
     ["List the files in {folder}", "What is in the folder {folder}?", "Show {folder}", "Which files are in {folder}?",
      "ls {folder}", "Show me everything in {folder}", "Look into the folder {folder}", "Files of {folder}",
      "Open the folder {folder}", "List {folder}"]),
    (["roll", "throw"], ["dice", "die"], ["Roll dice", "Roll a die with some sides"],
     {"sides": integer, "count": integer},
     ["Roll a die with {sides} sides", "Roll {count} dice", "Throw {count} dice with {sides} sides",
      "Roll {count} dice of {sides} sides", "Throw a die with {sides} sides", "I want to roll {count} dice",
      "Dice: {count} with {sides} sides", "Give me a throw of {count} dice", "Let {count} dice roll",
      "A throw with {sides} sides please"]),
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


# What clients also call a parameter.
OTHER_NAMES = {
    "city": ["location", "place", "city_name"], "query": ["q", "search", "text", "term"],
    "to": ["email", "recipient", "receiver"], "order_id": ["id", "number", "order", "order_number"],
    "symbol": ["stock", "ticker"], "url": ["link", "address"], "title": ["name", "summary"], "people": ["guests",
    "seats"],
    "amount": ["value", "sum"], "language": ["target_language", "lang"], "minutes": ["duration"], "email": ["address"],
    "path": ["file", "filename"], "message": ["text", "body"], "text": ["content"], "degrees": ["temperature"],
    "restaurant": ["name", "place"], "on": ["state"], "days": ["day_count"], "date": ["day"], "unit": ["units"],
    "song": ["title", "name"], "topic": ["subject"], "from_currency": ["from", "source"],
    "to_currency": ["to", "target"], "origin": ["from", "start"], "destination": ["to", "end"], "due": ["due_date"]}


def real_tool(r, taken):
    """A tool as people really offer it, asked for in ordinary words."""
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
    """What the user says, and the arguments that the call then has: those that were mentioned, in the tool's order."""
    if tool.requests:
        form = noisy_request(r, split, phrasing(r, split, tool.requests))
        given = {p: value(r, split, tool.parameters[n]) for p, n in tool.slots.items() if "{" + p + "}" in form}
        text = form.format(**{p: SPOKEN[v] if isinstance(v, bool) else said(v) for p, v in given.items()})
        return text, {tool.slots[p]: v for p, v in given.items()}
    given = {p: value(r, split, make) for p, make in tool.parameters.items() if r.random() < 0.85}
    text = stem(r, split, tool, listed(r, tool, given))
    # A name of a tool stays as it is written.
    begins_with_name = text.startswith(tool.name) and r.random() < 0.7
    return text if begins_with_name else text[0].upper() + text[1:], given


OPENINGS = ["So", "Well,", "Then", "And", "Also,", "Next,", "First,", "One more thing:", "Right,", "Alright,",
            "Sorry,", "If you can:", "When you have time:", "My boss asks:", "I am in a hurry.", "It is for a friend.",
            "Quick question:", "I have a question.", "Let me see."]
CLOSINGS = ["now", "right now", "please", "thanks", "for me", "if you can", "as soon as possible", "again",
"then",
            "It is urgent.", "Thank you.", "I am in a hurry.", "It is for my boss."]


def noisy_request(r, split, form):
    """Sometimes, in training, with something around it that changes nothing."""
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
    """The arguments in words."""
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


BY_NAME = ["Call {}", "Use {}", "Run {}", "Please call {}", "Use the {} tool", "Invoke {}", "Execute {}", "Try {}",
           "Call the tool {}", "Use the tool {}", "Run the tool {}", "Start {}", "Do {}", "Please use {}",
           "Now call {}",
           "Apply {}", "Trigger {}", "Try the {} tool", "Make a call of {}", "I want you to call {}",
           "Call the function {}",
           "Use the function {}", "Run the function {}", "Please run {}", "Could you call {}", "Execute the tool {}",
           "Invoke the {} function", "Fire {}", "{}", "{} please", "Next, {}", "Let us use {}", "Go for {}", "Take {}"]
IN_WORDS = ["{v} the {n}{a}", "Please {v} the {n}{a}", "Can you {v} the {n}{a}?", "I want to {v} a {n}{a}",
            "{v} {n}{a}", "{v} a {n}{a}.", "I need you to {v} the {n}{a}", "Could you {v} the {n}{a}?",
            "Would you {v} the {n}{a}?", "I would like you to {v} the {n}{a}", "Now {v} the {n}{a}",
            "Let us {v} a {n}{a}", "{v} my {n}{a}", "{v} this {n}{a}", "I would like to {v} the {n}{a}",
            "Then {v} the {n}{a}", "Next, {v} the {n}{a}", "Go and {v} the {n}{a}", "You should {v} the {n}{a}",
            "We have to {v} the {n}{a}", "I have to {v} the {n}{a}", "Help me {v} the {n}{a}", "Can I {v} the {n}{a}?",
            "Will you {v} our {n}{a}?", "Do {v} the {n}{a}", "Just {v} the {n}{a}", "Is it possible to {v} the {n}{a}?",
            "{v} one {n}{a}", "{v} another {n}{a}", "I need to {v} a {n}{a}", "It is time to {v} the {n}{a}",
            "For my boss, {v} the {n}{a}", "As a next step {v} the {n}{a}", "Quickly {v} the {n}{a}",
            "The {n}: {v} it{a}", "About the {n}: please {v} it{a}", "There is a {n} to {v}{a}", "Also {v} the {n}{a}"]
READ = ["What is the {n}{a}?", "Which {n} is it{a}?", "Tell me the {n}{a}", "I want to know the {n}{a}", "{n}{a}?",
        "What do you know about the {n}{a}?", "Is there a {n}{a}?", "Give me the {n}{a}"]
SHARE_OF_NOISE = 0.25


def stem(r, split, tool, arguments):
    if r.random() < 0.25:
        return noisy(r, split, phrasing(r, split, BY_NAME)).format(tool.name) + arguments
    if tool.verb in READING and r.random() < 0.15:
        return noisy(r, split, phrasing(r, split, READ)).format(n=tool.noun, a=arguments)
    form = phrasing(r, split, IN_WORDS)
    return noisy(r, split, form).format(v=tool.verb, n=tool.noun, a=arguments)


def noisy(r, split, form):
    """Sometimes, in training, with another word in it or before it: what counts are the tool's own words."""
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
    keys = r.sample([*RESULT_KEYS, invented(r, split), "sky"], r.choice([1, 1, 1, 1, 2, 3]))
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
