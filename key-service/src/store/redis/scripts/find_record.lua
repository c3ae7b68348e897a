-- Finds a record that expires, and removes the record if asked to. A session of an earlier version, which is a hash, is
-- rewritten first.
--
-- KEYS  the record
-- ARGV  'take' to remove the record
local name = KEYS[1]
if redis.call('TYPE', name).ok == 'hash' then
  local fields = { 'member', 'expires_at', 'id', 'created_at', 'seen_at', 'way', 'agent' }
  local member, expires_at, id, created_at, seen_at, way, agent = unpack(redis.call('HMGET', name, unpack(fields)))
  local session = table.concat({ member, expires_at, id, created_at, seen_at, way or 'password' }, ' ')
  redis.call('SET', name, session .. '\n' .. agent, 'KEEPTTL')
end
return redis.call(ARGV[1] == 'take' and 'GETDEL' or 'GET', name)
