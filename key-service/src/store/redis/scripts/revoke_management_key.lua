-- Revokes a management key now, or leaves it as it was revoked. Returns the resulting key, nothing where
-- there is none.
--
-- KEYS  the key
-- ARGV  now
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
redis.call('HSETNX', KEYS[1], 'revoked_at', ARGV[1])
return redis.call('HGETALL', KEYS[1])
