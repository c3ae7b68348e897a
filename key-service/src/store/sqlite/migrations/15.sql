-- Deposits keep their reason, and the credit just after them. Earlier deposits have neither.
ALTER TABLE deposits ADD COLUMN note   TEXT NOT NULL DEFAULT '';
ALTER TABLE deposits ADD COLUMN credit INTEGER CHECK (credit >= 0);
