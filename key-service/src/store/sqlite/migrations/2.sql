-- The journal gets an order, and its entries are counted by key, model and day.

ALTER TABLE accounts ADD COLUMN entries INTEGER NOT NULL DEFAULT 0; -- the number of the journal's last entry
ALTER TABLE journal  ADD COLUMN number  INTEGER NOT NULL DEFAULT 0;

UPDATE journal SET number = ordered.number
FROM (SELECT account, generation, row_number() OVER (PARTITION BY account ORDER BY at, generation) AS number
      FROM journal) AS ordered
WHERE (journal.account, journal.generation) = (ordered.account, ordered.generation);

UPDATE accounts SET entries = (SELECT count(*) FROM journal WHERE journal.account = accounts.id);

CREATE UNIQUE INDEX journal_by_number ON journal (account, number);

-- Days since 1970; no count exceeds 2^53 - 1.
CREATE TABLE usage (
    account    BLOB    NOT NULL,
    day        INTEGER NOT NULL,
    key        BLOB    NOT NULL,
    model      TEXT    NOT NULL,
    requests   INTEGER NOT NULL CHECK (requests >= 0),
    prompt     INTEGER NOT NULL CHECK (prompt >= 0),
    cached     INTEGER NOT NULL CHECK (cached >= 0),
    completion INTEGER NOT NULL CHECK (completion >= 0),
    charged    INTEGER NOT NULL CHECK (charged >= 0),
    PRIMARY KEY (account, day, key, model),
    FOREIGN KEY (account, key) REFERENCES api_keys
) STRICT, WITHOUT ROWID;

-- Token counts are unsigned, so a value below zero here is far above the bound for one request.
INSERT INTO usage
SELECT account, at / 86400000, key, model, count(*),
       sum(CASE WHEN prompt     BETWEEN 0 AND 1000000000000 THEN prompt     ELSE 1000000000000 END),
       sum(CASE WHEN cached     BETWEEN 0 AND 1000000000000 THEN cached     ELSE 1000000000000 END),
       sum(CASE WHEN completion BETWEEN 0 AND 1000000000000 THEN completion ELSE 1000000000000 END),
       min(sum(charged), 9007199254740991)
FROM journal GROUP BY account, at / 86400000, key, model;
