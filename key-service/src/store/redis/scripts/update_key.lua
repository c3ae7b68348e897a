-- Changes what the owner of a key may change. Answers the key as it is then, 'revoked' where it cannot be changed any
-- more, nothing where there is no such key.
--
-- KEYS  the key
-- ARGV  how many fields are set, each with its value, then those that are cleared
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
if redis.call('HEXISTS', KEYS[1], 'revoked_at') == 1 then return redis.status_reply('revoked') end
local set = 2 * tonumber(ARGV[1])
for at = 2, 1 + set, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
for at = 2 + set, #ARGV do redis.call('HDEL', KEYS[1], ARGV[at]) end
return redis.call('HGETALL', KEYS[1])
