-- Events: who governed what, and which thresholds were passed.

-- `once` names a threshold, which is told once, in hexadecimal digits. `event` is JSON, as `domain::event` writes it; the columns beside it are for
-- searches.
CREATE TABLE events (
    account  BLOB    NOT NULL REFERENCES accounts,
    number   INTEGER NOT NULL CHECK (number > 0),
    id       BLOB    NOT NULL CHECK (length(id) = 16),
    at       INTEGER NOT NULL,
    type     TEXT    NOT NULL,
    key      BLOB    CHECK (length(key) = 16),
    group_id BLOB    CHECK (length(group_id) = 16),
    once     TEXT,
    event    TEXT    NOT NULL,
    PRIMARY KEY (account, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX events_by_id ON events (account, id);
CREATE INDEX events_by_type ON events (account, type, number);
CREATE INDEX events_by_key ON events (account, key, number) WHERE key IS NOT NULL;
CREATE INDEX events_by_group ON events (account, group_id, number) WHERE group_id IS NOT NULL;
CREATE UNIQUE INDEX events_once ON events (account, once) WHERE once IS NOT NULL;

-- The number of the last event.
ALTER TABLE accounts ADD COLUMN events INTEGER NOT NULL DEFAULT 0 CHECK (events >= 0);
-- Credit just after the last deposit, of which thresholds are parts.
ALTER TABLE accounts ADD COLUMN deposited INTEGER CHECK (deposited >= 0);
ALTER TABLE accounts ADD COLUMN deposited_at INTEGER;
UPDATE accounts SET deposited = credit, deposited_at = 0;
