-- Raises the count at which a data directory has seen the store. Another process with the same directory may have
-- raised it further.
--
-- Redis logs two writes of a script as a transaction, like nearly all of the store. A server that skips transactions
-- while it reads its file again (as the user `default`, who may not be allowed these commands) skips this mark as well.
--
-- KEYS: the marks. ARGV: the data directory, the count, the time of the last check.
local count = redis.call('HGET', KEYS[1], ARGV[1])
if not count or tonumber(count) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('HSET', KEYS[1], 'last', ARGV[2])
end
redis.call('HSET', KEYS[1], 'looked', ARGV[3])
return redis.status_reply('OK')
