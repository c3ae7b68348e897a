-- Costs to the operator are added up by day and model, as charges are; and all sums by day and group.
ALTER TABLE spend ADD COLUMN upstream_cost         INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spend ADD COLUMN charged_at_known_cost INTEGER NOT NULL DEFAULT 0;
UPDATE spend SET upstream_cost = u.upstream_cost, charged_at_known_cost = u.charged_at_known_cost
FROM (
    SELECT account, day, model,
           CAST(min(total(upstream_cost), 9007199254740991) AS INTEGER) AS upstream_cost,
           CAST(min(total(charged_at_known_cost), 9007199254740991) AS INTEGER) AS charged_at_known_cost
    FROM usage GROUP BY account, day, model
) u
WHERE u.account = spend.account AND u.day = spend.day AND u.model = spend.model;

-- The sums of the keys that were in a group, by the group that they were in.
CREATE TABLE group_spend (
    account               BLOB    NOT NULL REFERENCES accounts,
    day                   INTEGER NOT NULL,
    group_id              BLOB    NOT NULL CHECK (length(group_id) = 16),
    charged               INTEGER NOT NULL,
    requests              INTEGER NOT NULL CHECK (requests >= 0),
    tokens                INTEGER NOT NULL CHECK (tokens >= 0),
    upstream_cost         INTEGER NOT NULL,
    charged_at_known_cost INTEGER NOT NULL,
    PRIMARY KEY (account, day, group_id)
) STRICT, WITHOUT ROWID;

INSERT INTO group_spend
SELECT account, day, group_id,
       CAST(min(total(charged), 9007199254740991) AS INTEGER),
       CAST(min(total(requests), 9007199254740991) AS INTEGER),
       CAST(min(total(prompt + completion), 9007199254740991) AS INTEGER),
       CAST(min(total(upstream_cost), 9007199254740991) AS INTEGER),
       CAST(min(total(charged_at_known_cost), 9007199254740991) AS INTEGER)
FROM usage WHERE length(group_id) > 0 GROUP BY account, day, group_id;
