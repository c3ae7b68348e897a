-- Makes a management key of an account, unless there is one of its id. Returns whether the account exists.
--
-- KEYS  the account, its list of management keys, the key
-- ARGV  the key's id, then its fields and their values
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('HSET', KEYS[3], unpack(ARGV, 2))
  redis.call('ZADD', KEYS[2], '0', ARGV[1])
end
return 1
