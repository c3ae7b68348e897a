-- Makes an account without credit, unless the account exists. An account counts once listed.
--
-- KEYS  the account; its keys by spend, which are complete from the beginning
-- ARGV  name, time of creation, funds
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('ZADD', KEYS[2], '+inf', '')
  redis.call('HSET', KEYS[1], 'funds', ARGV[3], 'name', ARGV[1], 'created_at', ARGV[2], 'keys', '0')
end
return redis.status_reply('OK')
