-- Creates a record of an account, listed by id: a member or a management key. A repetition changes nothing. Returns
-- 'created', 'taken' where another record has the name, or 'full' where the list is; nothing where the account does not
-- exist.
--
-- KEYS  the account, the list, the record; where names are unique, the names
-- ARGV  the record's id and name, the longest list, then the record's fields and their values
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local owner = KEYS[4] and redis.call('HGET', KEYS[4], ARGV[2])
if owner and owner ~= ARGV[1] then return 'taken' end
if redis.call('EXISTS', KEYS[3]) == 1 then return 'created' end
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[3]) then return 'full' end
if KEYS[4] then redis.call('HSET', KEYS[4], ARGV[2], ARGV[1]) end
redis.call('HSET', KEYS[3], unpack(ARGV, 4))
redis.call('ZADD', KEYS[2], '0', ARGV[1])
write_event()
return 'created'
