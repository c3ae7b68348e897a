-- Takes an account off the index of accounts with holds, unless it was listed anew in the meantime. Answers
-- whether it did.
--
-- KEYS  the index
-- ARGV  the account's id, the time at which it was listed
local listed = redis.call('ZSCORE', KEYS[1], ARGV[1])
if listed and tonumber(listed) <= tonumber(ARGV[2]) then return redis.call('ZREM', KEYS[1], ARGV[1]) end
return 0
