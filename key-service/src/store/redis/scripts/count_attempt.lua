-- Counts an attempt, or takes one back. The count is forgotten some time after the first attempt.
--
-- KEYS  the count
-- ARGV  1 or -1, that time in milliseconds
local count = tonumber(redis.call('GET', KEYS[1]) or '0') + tonumber(ARGV[1])
if count < 0 then return 0 end
redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2], 'NX')
return count
