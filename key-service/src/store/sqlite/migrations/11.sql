-- Amounts that imported keys and groups had spent elsewhere, from which audits begin.
ALTER TABLE api_keys ADD COLUMN opening INTEGER NOT NULL DEFAULT 0 CHECK (opening >= 0);
ALTER TABLE groups   ADD COLUMN opening INTEGER NOT NULL DEFAULT 0 CHECK (opening >= 0);
