-- Keeps a session, and lists the session under the member.
--
-- KEYS  the session, the list of the member's sessions
-- ARGV  the session's digest and id, milliseconds that the session lives, milliseconds that the list lives, then
-- names and values of the session's fields
redis.call('HSET', KEYS[1], unpack(ARGV, 5))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return redis.status_reply('OK')
