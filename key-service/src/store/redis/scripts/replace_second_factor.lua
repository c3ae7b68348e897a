-- Replaces the second factor of a member, unless it was replaced meanwhile. Returns 1 if it was replaced.
--
-- KEYS  the member
-- ARGV  the second factor before and after, each empty where there is none
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if (redis.call('HGET', KEYS[1], 'second_factor') or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], 'second_factor')
else
  redis.call('HSET', KEYS[1], 'second_factor', ARGV[2])
end
write_event()
return 1
