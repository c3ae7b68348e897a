-- Records the use of a management key, unless a recent one is recorded. Returns 1 if it was, 0 otherwise.
--
-- KEYS  the key
-- ARGV  now, and the least time between two recorded uses
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local last = redis.call('HGET', KEYS[1], 'last_used_at')
if last and tonumber(last) + tonumber(ARGV[2]) > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'last_used_at', ARGV[1])
return 1
