-- Notes the last use of a session, unless the session has ended.
--
-- KEYS  the session
-- ARGV  time of use, time of expiry, milliseconds until the expiry
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HSET', KEYS[1], 'seen_at', ARGV[1], 'expires_at', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return redis.status_reply('OK')
