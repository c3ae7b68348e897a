-- Moves active keys whose time has come to those that have expired, at most 1,000 of them. Answers how many it moved, and
-- whether all keys of the account are listed by their status: those of an earlier version are not.
--
-- KEYS  the account's list of keys, its keys by status: active, expired, revoked; those that expire
-- ARGV  now
local due = redis.call('ZRANGE', KEYS[5], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', '0', '1000')
for _, id in ipairs(due) do
  redis.call('ZREM', KEYS[5], id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('ZADD', KEYS[3], '0', id)
end
local listed = redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[3]) + redis.call('ZCARD', KEYS[4])
return { #due, listed >= redis.call('ZCARD', KEYS[1]) and 1 or 0 }
