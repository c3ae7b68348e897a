-- Who made a sign-in link and beside which password, how a session began, and the last link that someone else made.

ALTER TABLE links ADD COLUMN maker TEXT NOT NULL DEFAULT 'operator';
ALTER TABLE links ADD COLUMN password BLOB CHECK (length(password) = 32);
ALTER TABLE sessions ADD COLUMN way TEXT NOT NULL DEFAULT 'password';
ALTER TABLE members ADD COLUMN last_link_by TEXT;
ALTER TABLE members ADD COLUMN last_link_at INTEGER;
