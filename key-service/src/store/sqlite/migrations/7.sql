-- Links, sessions and attempts become records of one kind, and the keys that spent most get an index.

-- Records that expire. Attempts to sign in belong to no account and no member, and have their count as value.
CREATE TABLE expiring (
    account    BLOB    NOT NULL,
    kind       TEXT    NOT NULL CHECK (kind IN ('link', 'session', 'attempts')),
    name       BLOB    NOT NULL CHECK (length(name) = 32),
    member     BLOB    CHECK ((member IS NULL) = (kind = 'attempts')),
    expires_at INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    PRIMARY KEY (account, kind, name),
    FOREIGN KEY (account, member) REFERENCES members (account, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

INSERT INTO expiring
SELECT account, 'link', digest, member, expires_at, coalesce(lower(hex(password)), '-') || ' ' || maker FROM links;
INSERT INTO expiring
SELECT account, 'session', digest, member, expires_at,
       'ses_' || lower(hex(id)) || ' ' || created_at || ' ' || seen_at || ' ' || way || char(10) || agent
FROM sessions;
INSERT INTO expiring SELECT x'', 'attempts', name, NULL, until, attempts FROM attempts;

DROP TABLE links;
DROP TABLE sessions;
DROP TABLE attempts;

CREATE INDEX expiring_by_expiry ON expiring (expires_at);
CREATE INDEX expiring_by_member ON expiring (account, member, kind) WHERE member IS NOT NULL;

CREATE INDEX keys_by_spend ON api_keys (account, used, id) WHERE used > 0;
