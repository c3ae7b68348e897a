-- Management keys get a scope, a group, an expiry and a last use.

-- A group is one of the account, which is never deleted.
ALTER TABLE management_keys ADD COLUMN scope        TEXT NOT NULL DEFAULT 'full' CHECK (scope IN ('full', 'read'));
ALTER TABLE management_keys ADD COLUMN group_id     BLOB CHECK (length(group_id) = 16);
ALTER TABLE management_keys ADD COLUMN expires_at   INTEGER;
ALTER TABLE management_keys ADD COLUMN last_used_at INTEGER;
