-- Indexes for what people look for, and the spend of each day.

-- Keys by status. The indexes have all that a status follows from, so that keys of another one are passed without being looked up.
CREATE INDEX keys_not_revoked ON api_keys (account, id, expires_at, revoked_at) WHERE revoked_at IS NULL;
CREATE INDEX keys_revoked     ON api_keys (account, id, revoked_at) WHERE revoked_at IS NOT NULL;

-- Entries of one key, and those that are not an exact bill.
CREATE INDEX journal_by_key  ON journal (account, key, number);
CREATE INDEX journal_unusual ON journal (account, number) WHERE estimated OR ending = 'expired' OR cost > charged;

-- The charges of all keys together. Corrections may give back more than was billed on their day.
CREATE TABLE spend (
    account BLOB    NOT NULL REFERENCES accounts,
    day     INTEGER NOT NULL,
    model   TEXT    NOT NULL,
    charged INTEGER NOT NULL,
    PRIMARY KEY (account, day, model)
) STRICT, WITHOUT ROWID;

INSERT INTO spend SELECT account, day, model, sum(charged) FROM usage GROUP BY account, day, model;
