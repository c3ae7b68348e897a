-- Ends an attempt, unless another one has begun since. Returns 1 where ended.
--
-- KEYS  the deliveries, their times, the last attempts
-- ARGV  the event, the record as claimed, the time of the next attempt (empty: none), the attempt, the most attempts
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
end
redis.call('LPUSH', KEYS[3], ARGV[4])
redis.call('LTRIM', KEYS[3], '0', tonumber(ARGV[5]) - 1)
return 1
