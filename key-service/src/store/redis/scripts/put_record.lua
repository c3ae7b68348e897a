-- Stores a record that expires, and lists the record under its member.
--
-- KEYS  the record, the list of the member's records of this kind
-- ARGV  the record's content, milliseconds that the record lives, milliseconds that the list lives, 1 if the record
-- takes the place of all others in the list
if ARGV[4] == '1' then
  for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do redis.call('DEL', name) end
  redis.call('DEL', KEYS[2])
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SADD', KEYS[2], KEYS[1])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return redis.status_reply('OK')
