-- Keeps a session, and lists it under its member.
--
-- KEYS  the session, the list of its member's sessions
-- ARGV  its digest, its id, milliseconds that the session lives, milliseconds that the list lives, then the session's
--       fields and their values
redis.call('HSET', KEYS[1], unpack(ARGV, 5))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return redis.status_reply('OK')
