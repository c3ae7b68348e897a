-- Times are milliseconds since 1970, amounts nano-USD, ids the 16 bytes of their UUIDs.
-- Rows of an account are clustered by it, and by the time inside the ids.

CREATE TABLE accounts (
    id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name       TEXT    NOT NULL UNIQUE,
    credit     INTEGER NOT NULL,
    held       INTEGER NOT NULL CHECK (held >= 0),
    created_at INTEGER NOT NULL,
    CHECK (credit >= held)
) STRICT, WITHOUT ROWID;

CREATE TABLE management_keys (
    account    BLOB    NOT NULL REFERENCES accounts,
    id         BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    name       TEXT    NOT NULL,
    hint       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER,
    PRIMARY KEY (account, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    account      BLOB    NOT NULL REFERENCES accounts,
    id           BLOB    NOT NULL CHECK (length(id) = 16),
    label        TEXT    NOT NULL,
    hint         TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    spend_limit  INTEGER CHECK (spend_limit >= 0),
    used         INTEGER NOT NULL CHECK (used >= 0),
    held         INTEGER NOT NULL CHECK (held >= 0),
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER,
    PRIMARY KEY (account, id)
) STRICT, WITHOUT ROWID;

-- Owners of credentials by digest. The id is one of `api_keys` or `management_keys`, depending on the class.
CREATE TABLE credentials (
    digest  BLOB NOT NULL PRIMARY KEY CHECK (length(digest) = 32),
    class   TEXT NOT NULL CHECK (class IN ('api', 'management')),
    account BLOB NOT NULL REFERENCES accounts,
    id      BLOB NOT NULL CHECK (length(id) = 16)
) STRICT, WITHOUT ROWID;

-- Open holds. Token counts and cost are the last report, which an expiry bills.
CREATE TABLE holds (
    account     BLOB    NOT NULL,
    generation  BLOB    NOT NULL CHECK (length(generation) = 16),
    key         BLOB    NOT NULL,
    model       TEXT    NOT NULL,
    amount      INTEGER NOT NULL CHECK (amount >= 0),
    prompt      INTEGER NOT NULL,
    cached      INTEGER NOT NULL,
    completion  INTEGER NOT NULL,
    cost        INTEGER NOT NULL CHECK (cost >= 0),
    lease_until INTEGER NOT NULL,
    PRIMARY KEY (account, generation),
    FOREIGN KEY (account, key) REFERENCES api_keys
) STRICT, WITHOUT ROWID;

CREATE INDEX holds_by_lease ON holds (lease_until);

-- Bills of all generations, kept for good: a key's `used` is the sum of the charges here.
CREATE TABLE journal (
    account    BLOB    NOT NULL,
    generation BLOB    NOT NULL CHECK (length(generation) = 16),
    key        BLOB    NOT NULL,
    model      TEXT    NOT NULL,
    prompt     INTEGER NOT NULL,
    cached     INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    cost       INTEGER NOT NULL,
    charged    INTEGER NOT NULL CHECK (charged BETWEEN 0 AND cost),
    ending     TEXT    NOT NULL CHECK (ending IN ('captured', 'expired')),
    estimated  INTEGER NOT NULL CHECK (estimated IN (0, 1)),
    at         INTEGER NOT NULL,
    PRIMARY KEY (account, generation),
    FOREIGN KEY (account, key) REFERENCES api_keys
) STRICT, WITHOUT ROWID;

CREATE TABLE deposits (
    account BLOB    NOT NULL REFERENCES accounts,
    id      BLOB    NOT NULL CHECK (length(id) = 16),
    amount  INTEGER NOT NULL CHECK (amount > 0),
    at      INTEGER NOT NULL,
    PRIMARY KEY (account, id)
) STRICT, WITHOUT ROWID;

-- Idempotency keys of key creation; pruned after they expire.
CREATE TABLE idempotency (
    account    BLOB    NOT NULL,
    key        TEXT    NOT NULL,
    request    BLOB    NOT NULL CHECK (length(request) = 32),
    api_key    BLOB    NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (account, key),
    FOREIGN KEY (account, api_key) REFERENCES api_keys
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);
