"""Checks webhooks as a receiver, with the public library of the Standard Webhooks specification."""

import json
import queue
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer

from facts import fact, make_key, raises, run, setting
from openai import OpenAI
from standardwebhooks import Webhook, WebhookVerificationError

MANAGEMENT = OpenAI(base_url=setting("BASE_URL"), api_key=setting("MANAGEMENT_KEY"))
DELIVERIES = queue.Queue()
PATIENCE = 30
# Older than the library tolerates.
TOO_OLD = timedelta(minutes=6)


class Receiver(BaseHTTPRequestHandler):
    """Keeps each delivery, and confirms it."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        DELIVERIES.put((dict(self.headers.items()), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def subscribed(**settings) -> dict:
    """Creates a webhook to a receiver in this process."""
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/hook"
    return MANAGEMENT.post("/management/webhooks", body={"url": url, **settings}, cast_to=dict)


@fact
def the_public_library_verifies_a_test_and_an_event():
    webhook = subscribed(types=["key.created"])
    path = f"/management/webhooks/{webhook['id']}"
    sent = MANAGEMENT.post(f"{path}/test", cast_to=dict)
    headers, body = DELIVERIES.get(timeout=PATIENCE)
    library = Webhook(webhook["secret"])
    assert library.verify(body, headers) == sent and sent["type"] == "webhook.test", sent
    make_key()
    headers, body = DELIVERIES.get(timeout=PATIENCE)
    event = library.verify(body, headers)
    assert event["type"] == "key.created" and headers["webhook-id"] == event["id"], event
    raises(WebhookVerificationError, lambda: library.verify(body.replace(b"created", b"revoked"), headers))
    raises(WebhookVerificationError, lambda: library.verify(body, {**headers, "webhook-id": sent["id"]}))
    old = datetime.now(tz=timezone.utc) - TOO_OLD
    signature = library.sign(event["id"], old, body.decode())
    late = {**headers, "webhook-timestamp": str(int(old.timestamp())), "webhook-signature": signature}
    refused = raises(WebhookVerificationError, lambda: library.verify(body, late))
    assert "too old" in str(refused), refused
    other = Webhook(subscribed()["secret"])
    raises(WebhookVerificationError, lambda: other.verify(body, headers))
    assert "secret" not in MANAGEMENT.get(path, cast_to=dict), "the secret is shown once"
    assert json.loads(body)["object"] == "event"


if __name__ == "__main__":
    run()
