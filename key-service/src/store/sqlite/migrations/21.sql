-- The bytes of an account's events, which are bounded.
ALTER TABLE accounts ADD COLUMN event_bytes INTEGER NOT NULL DEFAULT 0 CHECK (event_bytes >= 0);
UPDATE accounts SET event_bytes =
    (SELECT coalesce(sum(length(CAST(event AS BLOB))), 0) FROM events WHERE account = accounts.id);

-- Idempotency keys make groups and webhooks too, and webhooks are removed: `made` is the id of an object of any kind, which
-- the digest of the request tells.
CREATE TABLE idempotency_of_all (
    account    BLOB    NOT NULL REFERENCES accounts,
    key        TEXT    NOT NULL,
    request    BLOB    NOT NULL CHECK (length(request) = 32),
    made       BLOB    NOT NULL CHECK (length(made) = 16),
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (account, key)
) STRICT, WITHOUT ROWID;
INSERT INTO idempotency_of_all SELECT * FROM idempotency;
DROP TABLE idempotency;
ALTER TABLE idempotency_of_all RENAME TO idempotency;
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);
