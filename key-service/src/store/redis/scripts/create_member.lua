-- Makes a member of an account, unless another one has the name; again is the same. Answers whether the name is its own,
-- nothing where there is no such account.
--
-- KEYS  the account, its list of members, their names, the member
-- ARGV  the member's id, its name, then its fields and their values
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
redis.call('HSETNX', KEYS[3], ARGV[2], ARGV[1])
if redis.call('HGET', KEYS[3], ARGV[2]) ~= ARGV[1] then return 0 end
if redis.call('EXISTS', KEYS[4]) == 0 then
  redis.call('HSET', KEYS[4], unpack(ARGV, 3))
  redis.call('ZADD', KEYS[2], '0', ARGV[1])
end
return 1
