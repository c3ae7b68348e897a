-- Changes fields of a member. Returns 1 if there is such a member.
--
-- KEYS  the member
-- ARGV  names and values of fields
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if #ARGV > 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
return 1
