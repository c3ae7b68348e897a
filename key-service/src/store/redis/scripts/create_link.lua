-- Keeps a sign-in link in place of its member's link before.
--
-- KEYS  the link, the name of the member's link
-- ARGV  the link's content, its name, milliseconds that it lives
local before = redis.call('GET', KEYS[2])
if before then redis.call('DEL', before) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return redis.status_reply('OK')
