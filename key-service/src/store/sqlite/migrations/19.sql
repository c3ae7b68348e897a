-- Numbers of API keys and groups ever made by an account: to count a hundred thousand keys takes 9 ms.
ALTER TABLE accounts ADD COLUMN keys   INTEGER NOT NULL DEFAULT 0 CHECK (keys >= 0);
ALTER TABLE accounts ADD COLUMN groups INTEGER NOT NULL DEFAULT 0 CHECK (groups >= 0);
UPDATE accounts SET keys   = (SELECT count(*) FROM api_keys WHERE account = accounts.id),
                    groups = (SELECT count(*) FROM groups   WHERE account = accounts.id);
