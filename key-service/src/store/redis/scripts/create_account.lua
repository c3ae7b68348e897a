-- Makes an account without credit, unless there is one. It counts once it is listed.
--
-- KEYS  the account
-- ARGV  its name, when it is made, its funds
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'funds', ARGV[3], 'name', ARGV[1], 'created_at', ARGV[2], 'keys', '0')
end
return redis.status_reply('OK')
