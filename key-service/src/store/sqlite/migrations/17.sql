-- The record of the peppers that credentials were made with: at most one row.
CREATE TABLE peppers (
    id     INTEGER PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    record TEXT NOT NULL
) STRICT;
