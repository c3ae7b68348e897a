-- Addresses that an account's events are sent to, each with the number of the last event that was looked at for it.
CREATE TABLE webhooks (
    account BLOB    NOT NULL REFERENCES accounts,
    id      BLOB    NOT NULL CHECK (length(id) = 16),
    record  TEXT    NOT NULL,
    cursor  INTEGER NOT NULL CHECK (cursor >= 0),
    PRIMARY KEY (account, id)
) STRICT, WITHOUT ROWID;

-- Events on their way to a webhook.
CREATE TABLE deliveries (
    account  BLOB    NOT NULL,
    webhook  BLOB    NOT NULL,
    event    BLOB    NOT NULL CHECK (length(event) = 16),
    attempts INTEGER NOT NULL CHECK (attempts >= 0),
    record   TEXT    NOT NULL,
    due_at   INTEGER NOT NULL,
    PRIMARY KEY (account, webhook, event),
    FOREIGN KEY (account, webhook) REFERENCES webhooks ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX deliveries_by_time ON deliveries (account, webhook, due_at);

-- The last attempts of each webhook.
CREATE TABLE delivery_attempts (
    number  INTEGER PRIMARY KEY,
    account BLOB NOT NULL,
    webhook BLOB NOT NULL,
    record  TEXT NOT NULL,
    FOREIGN KEY (account, webhook) REFERENCES webhooks ON DELETE CASCADE
) STRICT;

CREATE INDEX attempts_by_webhook ON delivery_attempts (account, webhook, number);
