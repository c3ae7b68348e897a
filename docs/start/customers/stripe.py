#!/usr/bin/env python3
"""Tells Faregate what Stripe reports: payments, refunds and disputes. Stripe sends its events to `POST /stripe`.

Stripe repeats an event for days until the answer is 200, and Faregate counts each id once. So an error needs no queue.
Refunds and disputes name a payment and no customer, so the script remembers who paid what in `stripe-payments.db`.
"""
import hashlib, hmac, json, os, sqlite3, sys, time, urllib.error, urllib.parse, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET, KEY = os.environ["STRIPE_WEBHOOK_SECRET"].encode(), os.environ["FAREGATE_OPERATOR_KEY"]
ACCOUNTS = os.environ["FAREGATE_OPERATOR_URL"].rstrip("/") + "/v1/operator/accounts/"

def payers(statement, *values):
    with sqlite3.connect("stripe-payments.db", timeout=10) as known:
        known.execute("CREATE TABLE IF NOT EXISTS payers (payment TEXT PRIMARY KEY, account TEXT NOT NULL)")
        return known.execute(statement, values).fetchone()

def is_signed(header, body):
    parts = [part.split("=", 1) for part in header.split(",") if "=" in part]
    at = dict(parts).get("t", "")
    expected = hmac.new(SECRET, at.encode() + b"." + body, hashlib.sha256).hexdigest().encode()
    signed = any(name == "v1" and hmac.compare_digest(value.encode(), expected) for name, value in parts)
    return signed and at.isdecimal() and abs(time.time() - int(at)) <= 300

def ask(account, path, body=None):
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    url = ACCOUNTS + "external:" + urllib.parse.quote(account, safe="") + path
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)

def call(account, act, **body):
    return ask(account, "/" + act, body)

def is_reinstated(account, dispute):
    try:
        return bool(ask(account, "/payments/" + urllib.parse.quote(f"{dispute}:reinstated", safe="")))
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return False

def restore_after(account, dispute):
    # Who suspended the account for another reason restores it.
    if ask(account, "")["suspended_reason"] == f"dispute {dispute}":
        call(account, "restore")

def usd(cents, currency):
    if currency != "usd":
        raise ValueError(f"a payment in {currency}: add what it is worth with `credits add`")
    # Exact: JSON has the shortest text of a float, which is the one with two digits.
    return cents / 100

def tell(kind, of):
    payment = of.get("payment_intent")
    if kind in ("checkout.session.completed", "checkout.session.async_payment_succeeded"):
        if of["payment_status"] == "paid":
            amount, account = usd(of["amount_total"], of["currency"]), of["client_reference_id"]
            payers("INSERT OR IGNORE INTO payers VALUES (?, ?)", payment, account)
            call(account, "payments", payment_id=payment, amount=amount)
    elif kind.startswith("charge.dispute.funds_") or kind.startswith("refund.") and of["status"] == "succeeded":
        (account,) = payers("SELECT account FROM payers WHERE payment = ?", payment)
        amount, id = usd(of["amount"], of["currency"]), of["id"]
        if kind.startswith("refund."):
            call(account, "refunds", payment_id=id, of=payment, amount=amount)
        elif kind.endswith("withdrawn"):
            # A closed account spends nothing, and takes only refunds.
            if ask(account, "")["status"] != "closed" and not is_reinstated(account, id):
                call(account, "suspend", reason=f"dispute {id}")
            call(account, "refunds", payment_id=id, of=payment, amount=amount, partial=True)
            # The reinstatement may have been reported in the meantime.
            if is_reinstated(account, id):
                restore_after(account, id)
        else:
            call(account, "payments", payment_id=f"{id}:reinstated", amount=amount)
            restore_after(account, id)

class Hook(BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self):
        try:
            body = self.rfile.read(max(0, min(int(self.headers.get("Content-Length", 0)), 1 << 20)))
            event = json.loads(body) if is_signed(self.headers.get("Stripe-Signature", ""), body) else None
            status = 400 if event is None or self.path != "/stripe" else tell(event["type"], event["data"]["object"]) or 200
        except Exception as error:
            status = 500
            print(f"an event is not counted yet: {error!r}", file=sys.stderr, flush=True)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

ThreadingHTTPServer((os.environ.get("LISTEN", "127.0.0.1"), int(os.environ.get("PORT", 8787))), Hook).serve_forever()
