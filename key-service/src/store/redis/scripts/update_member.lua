-- Changes fields of a member. Answers whether there is one.
--
-- KEYS  the member
-- ARGV  fields and their values
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if #ARGV > 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
return 1
