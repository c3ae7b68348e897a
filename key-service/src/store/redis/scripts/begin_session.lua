-- Stores a session, unless it is stored already.
--
-- KEYS  the session; the list of the member's sessions
-- ARGV  the session's record and life in milliseconds; its name; the life of the list in milliseconds
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  redis.call('HSET', KEYS[2], ARGV[3], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
  write_event()
end
return redis.status_reply('OK')
