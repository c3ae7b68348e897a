-- Notes when a session was used, unless it has ended.
--
-- KEYS  the session
-- ARGV  when it was used, when it expires, milliseconds until then
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HSET', KEYS[1], 'seen_at', ARGV[1], 'expires_at', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return redis.status_reply('OK')
