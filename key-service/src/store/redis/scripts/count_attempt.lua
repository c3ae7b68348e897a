-- Counts an attempt. The count is forgotten some time after the first attempt.
--
-- KEYS  the count
-- ARGV  that time in milliseconds
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return count
