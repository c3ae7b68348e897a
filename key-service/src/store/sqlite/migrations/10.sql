-- Keys are rotated: their credentials have numbers, in the order of rotations.

ALTER TABLE credentials ADD COLUMN number INTEGER NOT NULL DEFAULT 0 CHECK (number >= 0);

-- Finds the credentials that a rotation made, so that the next but one forgets them.
CREATE INDEX rotated_credentials ON credentials (account, id, number) WHERE number > 0;

-- The current credential, and the time until which the one before is accepted too.
ALTER TABLE api_keys ADD COLUMN credential     INTEGER NOT NULL DEFAULT 0 CHECK (credential >= 0);
ALTER TABLE api_keys ADD COLUMN previous_until INTEGER;
