-- Lease time is counted in ticks of the account; the journal is append-only, each entry with its change and the key's
-- balance after it.

ALTER TABLE accounts ADD COLUMN tick INTEGER NOT NULL DEFAULT 0;

-- From here on a tick of the account instead of a time. Open holds get a full lease.
DROP INDEX holds_by_lease;
UPDATE holds SET lease_until = 7;

CREATE TABLE entries (
    account    BLOB    NOT NULL,
    number     INTEGER NOT NULL CHECK (number > 0),
    generation BLOB    NOT NULL CHECK (length(generation) = 16),
    key        BLOB    NOT NULL,
    model      TEXT    NOT NULL,
    prompt     INTEGER NOT NULL,
    cached     INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    cost       INTEGER NOT NULL,
    charged    INTEGER NOT NULL CHECK (charged BETWEEN 0 AND cost),
    delta      INTEGER NOT NULL,
    used_after INTEGER NOT NULL CHECK (used_after >= 0),
    ending     TEXT    NOT NULL CHECK (ending IN ('captured', 'expired')),
    estimated  INTEGER NOT NULL CHECK (estimated IN (0, 1)),
    at         INTEGER NOT NULL,
    PRIMARY KEY (account, number),
    FOREIGN KEY (account, key) REFERENCES api_keys
) STRICT, WITHOUT ROWID;

INSERT INTO entries
SELECT account, number, generation, key, model, prompt, cached, completion, cost, charged, charged,
       sum(charged) OVER (PARTITION BY account, key ORDER BY number), ending, estimated, at
FROM journal;

DROP TABLE journal;
ALTER TABLE entries RENAME TO journal;
-- The bill of a generation is its last entry.
CREATE INDEX journal_by_generation ON journal (account, generation, number);

-- Corrections may give back more than was billed on their day.
CREATE TABLE counters (
    account    BLOB    NOT NULL,
    day        INTEGER NOT NULL,
    key        BLOB    NOT NULL,
    model      TEXT    NOT NULL,
    requests   INTEGER NOT NULL CHECK (requests >= 0),
    prompt     INTEGER NOT NULL CHECK (prompt >= 0),
    cached     INTEGER NOT NULL CHECK (cached >= 0),
    completion INTEGER NOT NULL CHECK (completion >= 0),
    charged    INTEGER NOT NULL,
    PRIMARY KEY (account, day, key, model),
    FOREIGN KEY (account, key) REFERENCES api_keys
) STRICT, WITHOUT ROWID;

INSERT INTO counters SELECT * FROM usage;
DROP TABLE usage;
ALTER TABLE counters RENAME TO usage;
