-- Gives an account the name and a place in the list, unless another account has the name.
-- Returns the owner of the name.
--
-- KEYS  the names, the list
-- ARGV  the name, the account's id
redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
local owner = redis.call('HGET', KEYS[1], ARGV[1])
if owner == ARGV[2] then redis.call('ZADD', KEYS[2], '0', ARGV[2]) end
return owner
