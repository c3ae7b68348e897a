-- Takes one attempt back. A count of none goes on to its end.
--
-- KEYS  the count
if tonumber(redis.call('GET', KEYS[1]) or '0') > 0 then redis.call('DECR', KEYS[1]) end
return redis.status_reply('OK')
