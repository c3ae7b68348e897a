"""Uses keys that were imported from another gateway, with the official Python SDK."""

import json

import openai
from facts import fact, run, scripted, setting
from openai import OpenAI

BASE_URL = setting("BASE_URL")
# The error code for each key; null if the key works.
KEYS = json.loads(setting("KEYS"))


def client(key: str) -> OpenAI:
    return OpenAI(base_url=BASE_URL, api_key=key, max_retries=0)


@fact
def keys_that_worked_elsewhere_work_unchanged():
    for key in (key for key, code in KEYS.items() if code is None):
        assert "Model Flash" in [model.id for model in client(key).models.list()]
        said = client(key).chat.completions.create(model="Model Flash", messages=[scripted(prompt_tokens=12)])
        assert said.choices[0].message.content == " the quick brown fox jumps"
        pieces = client(key).chat.completions.create(model="Model Flash", messages=[scripted()], stream=True)
        streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        assert streamed == " the quick brown fox jumps"


@fact
def keys_that_did_not_work_are_refused():
    for key, code in KEYS.items():
        if code is None:
            continue
        try:
            client(key).chat.completions.create(model="Model Flash", messages=[scripted()])
        except openai.APIStatusError as error:
            assert error.code == code, f"{error.code} instead of {code}"
        else:
            raise AssertionError(f"a key that should fail with {code} works")


run()
