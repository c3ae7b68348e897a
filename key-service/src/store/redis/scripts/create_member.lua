-- Makes a member of an account, unless another one has the name or the account has as many as it may; again is the same.
-- Returns the result, nothing where the account does not exist.
--
-- KEYS  the account, its list of members, their names, the member
-- ARGV  the member's id, its name, members that the account may have, then the member's fields and their values
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local owner = redis.call('HGET', KEYS[3], ARGV[2])
if owner == ARGV[1] then return 'made' end
if owner then return 'taken' end
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[3]) then return 'full' end
redis.call('HSET', KEYS[3], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[4], unpack(ARGV, 4))
redis.call('ZADD', KEYS[2], '0', ARGV[1])
return 'made'
