-- Groups pay along with keys; keys and groups get further bounds; bills get the parts of a usage and the operator's cost.

-- Bounds of keys, groups and key defaults are records of `store/records.rs`. Metadata are JSON objects.
CREATE TABLE groups (
    account              BLOB    NOT NULL REFERENCES accounts,
    id                   BLOB    NOT NULL CHECK (length(id) = 16),
    name                 TEXT    NOT NULL,
    external_id          TEXT,
    metadata             TEXT,
    created_at           INTEGER NOT NULL,
    parent               BLOB,
    spend_limit          INTEGER CHECK (spend_limit >= 0),
    used                 INTEGER NOT NULL CHECK (used >= 0),
    held                 INTEGER NOT NULL CHECK (held >= 0),
    bounds               BLOB,
    archived_at          INTEGER,
    default_limit        INTEGER CHECK (default_limit >= 0),
    default_bounds       BLOB,
    default_lifetime     INTEGER CHECK (default_lifetime > 0), -- seconds
    default_metadata     TEXT,
    PRIMARY KEY (account, id),
    FOREIGN KEY (account, parent) REFERENCES groups
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX groups_by_external_id ON groups (account, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX groups_by_parent ON groups (account, parent);

-- A key's group is one of its account, which is never deleted.
ALTER TABLE api_keys ADD COLUMN group_id BLOB CHECK (length(group_id) = 16);
ALTER TABLE api_keys ADD COLUMN bounds   BLOB;
ALTER TABLE api_keys ADD COLUMN metadata TEXT;

CREATE INDEX keys_by_group ON api_keys (account, group_id, id, expires_at, revoked_at) WHERE group_id IS NOT NULL;

-- The groups that pay, as of the beginning of the generation. `counted` has a bit for each budget that counts the hold in
-- its bounds: 1 the key, 2 the group, 4 the parent.
ALTER TABLE holds ADD COLUMN group_id       BLOB CHECK (length(group_id) = 16);
ALTER TABLE holds ADD COLUMN parent         BLOB CHECK (length(parent) = 16);
ALTER TABLE holds ADD COLUMN details        BLOB;
ALTER TABLE holds ADD COLUMN upstream_cost  INTEGER;
ALTER TABLE holds ADD COLUMN counted        INTEGER NOT NULL DEFAULT 0 CHECK (counted BETWEEN 0 AND 7);
ALTER TABLE holds ADD COLUMN counted_tokens INTEGER NOT NULL DEFAULT 0;

ALTER TABLE journal ADD COLUMN group_id      BLOB CHECK (length(group_id) = 16);
ALTER TABLE journal ADD COLUMN parent        BLOB CHECK (length(parent) = 16);
ALTER TABLE journal ADD COLUMN details       BLOB;
ALTER TABLE journal ADD COLUMN upstream_cost INTEGER;

CREATE INDEX journal_by_group  ON journal (account, group_id, number) WHERE group_id IS NOT NULL;
CREATE INDEX journal_by_parent ON journal (account, parent, number) WHERE parent IS NOT NULL;

-- Counters by payer. An empty value is no group.
CREATE TABLE counters (
    account               BLOB    NOT NULL,
    day                   INTEGER NOT NULL,
    key                   BLOB    NOT NULL,
    model                 TEXT    NOT NULL,
    group_id              BLOB    NOT NULL,
    parent                BLOB    NOT NULL,
    requests              INTEGER NOT NULL CHECK (requests >= 0),
    prompt                INTEGER NOT NULL CHECK (prompt >= 0),
    cached                INTEGER NOT NULL CHECK (cached >= 0),
    completion            INTEGER NOT NULL CHECK (completion >= 0),
    cache_write           INTEGER NOT NULL CHECK (cache_write >= 0),
    cache_write_long      INTEGER NOT NULL CHECK (cache_write_long >= 0),
    audio_input           INTEGER NOT NULL CHECK (audio_input >= 0),
    images                INTEGER NOT NULL CHECK (images >= 0),
    reasoning             INTEGER NOT NULL CHECK (reasoning >= 0),
    audio_output          INTEGER NOT NULL CHECK (audio_output >= 0),
    charged               INTEGER NOT NULL,
    upstream_cost         INTEGER NOT NULL,
    charged_at_known_cost INTEGER NOT NULL,
    PRIMARY KEY (account, day, key, model, group_id, parent),
    FOREIGN KEY (account, key) REFERENCES api_keys
) STRICT, WITHOUT ROWID;

INSERT INTO counters
SELECT account, day, key, model, x'', x'', requests, prompt, cached, completion, 0, 0, 0, 0, 0, 0, charged, 0, 0
FROM usage;
DROP TABLE usage;
ALTER TABLE counters RENAME TO usage;
