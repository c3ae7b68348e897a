-- Requests and tokens are added up by day and model, as charges are.
ALTER TABLE spend ADD COLUMN requests INTEGER NOT NULL DEFAULT 0 CHECK (requests >= 0);
ALTER TABLE spend ADD COLUMN tokens   INTEGER NOT NULL DEFAULT 0 CHECK (tokens >= 0);
UPDATE spend SET (requests, tokens) = (
    SELECT CAST(min(total(u.requests), 9007199254740991) AS INTEGER),
           CAST(min(total(u.prompt + u.completion), 9007199254740991) AS INTEGER)
    FROM usage u WHERE u.account = spend.account AND u.day = spend.day AND u.model = spend.model
);
