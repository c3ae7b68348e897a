-- Removes a member. Links and sessions of the member lead nowhere from then on. Returns 1 if there was such a member.
--
-- KEYS  the account's list of members, the names of members, the member
-- ARGV  the member's id
local name = redis.call('HGET', KEYS[3], 'name')
if not name then return 0 end
redis.call('DEL', KEYS[3])
redis.call('ZREM', KEYS[1], ARGV[1])
if redis.call('HGET', KEYS[2], name) == ARGV[1] then redis.call('HDEL', KEYS[2], name) end
write_event()
return 1
