"""Questions written by hand: `by_hand.py http://127.0.0.1:8000/v1`.

The templates hold out wordings, but think like their author. This asks what people ask: tools as real clients offer
them, with the calls that would be right, and questions whose answers somebody has to read. Nothing of it is held out:
what fails here shows what the templates lack.
"""

import argparse
import json

from tool_calls import ask

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}


def tool(name, description, parameters, optional=()):
    required = [parameter for parameter in parameters if parameter not in optional]
    schema = {"type": "object", "properties": parameters, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


CITY = [tool("get_weather", "Get the weather in a city", {"city": STRING, "unit": UNIT}, ["unit"]),
        tool("send_invoice", "Send an invoice to a customer",
             {"email": STRING, "amount": NUMBER, "due": STRING}, ["due"])]
PLACE = [tool("get_current_temperature", "Get current temperature for a given location.",
              {"location": STRING, "unit": UNIT}, ["unit"])]
OFFICE = [tool("create_calendar_event", "Create an event in the user's calendar",
               {"title": STRING, "date": STRING, "time": STRING}, ["time"]),
          tool("search_documents", "Search the company's documents", {"query": STRING, "limit": INTEGER}, ["limit"]),
          tool("send_slack_message", "Send a message to a channel", {"channel": STRING, "message": STRING}),
          tool("get_employee", "Look up an employee by name", {"name": STRING})]
HOME = [tool("set_thermostat", "Set the temperature of a room", {"room": STRING, "degrees": NUMBER}),
        tool("toggle_light", "Turn the light of a room on or off", {"room": STRING, "on": BOOLEAN}),
        tool("play_playlist", "Play a playlist", {"playlist": STRING, "shuffle": BOOLEAN}, ["shuffle"]),
        tool("lock_door", "Lock a door", {"door": STRING})]
SHOP = [tool("lookup_order", "Get the status of an order", {"order_id": STRING}),
        tool("refund_order", "Refund an order", {"order_id": STRING, "reason": STRING}, ["reason"]),
        tool("add_to_cart", "Add an item to the cart", {"item": STRING, "quantity": INTEGER}),
        tool("apply_coupon", "Apply a coupon code", {"code": STRING})]
SUMS = [tool("multiply", "Multiply two numbers", {"a": INTEGER, "b": INTEGER}),
        tool("add", "Add two numbers", {"a": INTEGER, "b": INTEGER})]

# (tools, request, name and arguments of the right call, or None where no tool answers)
REQUESTS = [
    (CITY, "What's the weather like in Lisbon, in celsius?", ("get_weather", {"city": "Lisbon", "unit": "celsius"})),
    (CITY, "Is it going to rain in Porto tomorrow?", ("get_weather", {"city": "Porto"})),
    (CITY, "how warm is it in Reykjavik", ("get_weather", {"city": "Reykjavik"})),
    (CITY, "Send an invoice of 129.50 to billing@northwind.example, due 2027-01-31",
     ("send_invoice", {"email": "billing@northwind.example", "amount": 129.5, "due": "2027-01-31"})),
    (CITY, "Please invoice jo@acme.dev 42 dollars", ("send_invoice", {"email": "jo@acme.dev", "amount": 42})),
    (PLACE, "What is the weather like in Paris today?", ("get_current_temperature", {"location": "Paris"})),
    (PLACE, "What's the temperature in San Francisco in fahrenheit?",
     ("get_current_temperature", {"location": "San Francisco", "unit": "fahrenheit"})),
    (OFFICE, "Schedule lunch with Tim for 2027-03-04 at 12:30",
     ("create_calendar_event", {"title": "lunch with Tim", "date": "2027-03-04", "time": "12:30"})),
    (OFFICE, "Find documents about travel expenses", ("search_documents", {"query": "travel expenses"})),
    (OFFICE, "Search the documents for holiday policy, at most 5",
     ("search_documents", {"query": "holiday policy", "limit": 5})),
    (OFFICE, "Tell general that the build is green",
     ("send_slack_message", {"channel": "general", "message": "the build is green"})),
    (OFFICE, "Send the message hello team to the channel random",
     ("send_slack_message", {"channel": "random", "message": "hello team"})),
    (OFFICE, "Who is Miriam Okafor?", ("get_employee", {"name": "Miriam Okafor"})),
    (HOME, "Set the bedroom to 19.5 degrees", ("set_thermostat", {"room": "bedroom", "degrees": 19.5})),
    (HOME, "Turn off the light in the kitchen", ("toggle_light", {"room": "kitchen", "on": False})),
    (HOME, "switch the hall light on please", ("toggle_light", {"room": "hall", "on": True})),
    (HOME, "Lock the front door", ("lock_door", {"door": "front door"})),
    (HOME, "Play my summer playlist", ("play_playlist", {"playlist": "summer"})),
    (HOME, "Play the playlist Evening Jazz", ("play_playlist", {"playlist": "Evening Jazz"})),
    (SHOP, "Where is my order 88123?", ("lookup_order", {"order_id": "88123"})),
    (SHOP, "I want a refund for order A-1009", ("refund_order", {"order_id": "A-1009"})),
    (SHOP, "Add 3 notebooks to my cart", ("add_to_cart", {"item": "notebooks", "quantity": 3})),
    (SHOP, "Apply the coupon SPRING25", ("apply_coupon", {"code": "SPRING25"})),
    (SHOP, "Use lookup_order with order_id B-77", ("lookup_order", {"order_id": "B-77"})),
    (SUMS, "What is 12 times 7?", ("multiply", {"a": 12, "b": 7})),
    (SUMS, "Add 1200 and 34", ("add", {"a": 1200, "b": 34})),
    (CITY, "Tell me a joke about tennis", None),
    (OFFICE, "Hello!", None),
    (SHOP, "Who are you?", None),
    (HOME, "What is the capital of Norway?", None),
]
QUESTIONS = [
    "Hi, who are you?", "What can you do?", "Good morning", "Thanks a lot", "My requests get 402, what should I do?",
    "How do I make a key that expires next month?", "how can i connect my vllm server?", "My key leaked! What now?",
    "I get spend_reserved all the time", "What is the difference between a limit and credit?",
    "raise the limit of a key", "Where can I see what a key has spent?", "Is there a dashboard?",
    "What does the code key_expired mean?", "do you log my prompts?", "How much does Model Max cost?",
    "can you see pictures", "Why was my request refused with 429?", "how do i use redis", "Which models are there?",
    "As JSON: name Jana Kovar, email jana.kovar@mail.example, age 41", "Repeat after me: blue whale",
    "Please say: the meeting is at 14:30 in room 5", "Can you count to 10?", "Give me three colours",
    "What color is a tomato?", "What's 17 + 25?", "Summarize the plot of Hamlet",
    "Write me a Rust function that parses a CSV file and explain why borrowing matters.",
]


def called(message):
    """The first call of an answer, as `REQUESTS` writes it."""
    for call in message.get("tool_calls") or []:
        return call["function"]["name"], json.loads(call["function"]["arguments"])
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="the server's address, with /v1; API_KEY may hold a key for it")
    parser.add_argument("--model", default="tiny-demo")
    options = parser.parse_args()
    body, right = {"model": options.model, "temperature": 0, "max_tokens": 200}, 0
    for tools, text, wanted in REQUESTS:
        message = ask(options.base, body | {"tools": tools, "messages": [{"role": "user", "content": text}]})
        right += called(message) == wanted
        if called(message) != wanted:
            print(f"{text}\n    wanted {wanted}\n    got    {called(message) or message['content']}")
    print(f"right {right} of {len(REQUESTS)}")
    for text in QUESTIONS:
        message = ask(options.base, body | {"messages": [{"role": "user", "content": text}]})
        print(f"{text}\n    {message['content']}")


if __name__ == "__main__":
    main()
