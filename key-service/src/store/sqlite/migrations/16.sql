-- Refused calls by key, hour and reason; those of all keys of an account under an empty key.
CREATE TABLE refused (
    account BLOB    NOT NULL REFERENCES accounts,
    key     BLOB    NOT NULL CHECK (length(key) IN (0, 16)),
    hour    INTEGER NOT NULL,
    reason  TEXT    NOT NULL,
    count   INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (account, key, hour, reason)
) STRICT, WITHOUT ROWID;
CREATE INDEX refused_by_hour ON refused (hour);
