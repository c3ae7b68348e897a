-- The people of an account, and what they sign in with. Tokens are stored as digests, passwords as hashes.

CREATE TABLE members (
    account    BLOB    NOT NULL REFERENCES accounts,
    id         BLOB    NOT NULL CHECK (length(id) = 16),
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL CHECK (role IN ('owner', 'viewer')),
    password   TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account, id),
    UNIQUE (account, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE links (
    account    BLOB    NOT NULL,
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    member     BLOB    NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (account, digest),
    FOREIGN KEY (account, member) REFERENCES members (account, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX links_by_expiry ON links (expires_at);
CREATE INDEX links_by_member ON links (account, member);

CREATE TABLE sessions (
    account    BLOB    NOT NULL,
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    id         BLOB    NOT NULL CHECK (length(id) = 16),
    member     BLOB    NOT NULL,
    agent      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (account, digest),
    FOREIGN KEY (account, member) REFERENCES members (account, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX sessions_by_member ON sessions (account, member);

-- Attempts to sign in, counted under digests of names and addresses.
CREATE TABLE attempts (
    name     BLOB    NOT NULL PRIMARY KEY CHECK (length(name) = 32),
    attempts INTEGER NOT NULL,
    until    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX attempts_by_end ON attempts (until);
