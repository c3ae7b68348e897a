-- Revokes a management key now, unless revoked before. Returns the resulting key, nothing if there is none.
--
-- KEYS  the key
-- ARGV  now
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
if redis.call('HSETNX', KEYS[1], 'revoked_at', ARGV[1]) == 1 then write_event() end
return redis.call('HGETALL', KEYS[1])
