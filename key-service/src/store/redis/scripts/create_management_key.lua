-- Makes a management key of an account, unless the account has as many as it may; again is the same. Returns whether there is
-- one, nothing where the account does not exist.
--
-- KEYS  the account, its list of management keys, the key
-- ARGV  the key's id, management keys that the account may have, then the key's fields and their values
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
if redis.call('EXISTS', KEYS[3]) == 0 then
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[2]) then return 0 end
  redis.call('HSET', KEYS[3], unpack(ARGV, 3))
  redis.call('ZADD', KEYS[2], '0', ARGV[1])
end
return 1
