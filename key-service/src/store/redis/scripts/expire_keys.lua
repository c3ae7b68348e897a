-- Moves at most 1,000 active keys past expiry to the expired keys. Returns the number of moved keys, and whether all keys of the
-- account are listed by status: keys of an earlier version are not.
--
-- KEYS  the account, the keys by status: active, expired, revoked; the keys with an expiry, the account's list of keys
-- ARGV  now
local due = redis.call('ZRANGE', KEYS[5], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', '0', '1000')
for _, id in ipairs(due) do
  redis.call('ZREM', KEYS[5], id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('ZADD', KEYS[3], '0', id)
end
local listed = redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[3]) + redis.call('ZCARD', KEYS[4])
return { #due, listed >= redis.call('ZCARD', KEYS[6]) and 1 or 0 }
