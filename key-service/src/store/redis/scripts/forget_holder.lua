-- Takes an account off the index of accounts with holds, unless listed anew in the meantime. Returns 1 if the account
-- was removed.
--
-- KEYS  the index
-- ARGV  the account's id, the time of the listing
local listed = redis.call('ZSCORE', KEYS[1], ARGV[1])
if listed and tonumber(listed) <= tonumber(ARGV[2]) then return redis.call('ZREM', KEYS[1], ARGV[1]) end
return 0
