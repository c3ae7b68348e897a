-- Revokes an API key now, unless revoked before. Returns the resulting balances and texts, nothing if the key does
-- not exist.
--
-- KEYS  the account, the key, the account's keys by status: active, expired, revoked; the keys with an expiry
-- ARGV  the key's id as bytes, and as text; now as a double
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record then return false end
local limit, high, low, held, expires_at, revoked_at, last_used_at = struct.unpack('>ddddddd', record)
if revoked_at == math.huge then
  revoked_at = struct.unpack('>d', ARGV[3])
  record = struct.pack('>ddddddd', limit, high, low, held, expires_at, revoked_at, last_used_at)
  redis.call('HSET', KEYS[1], ARGV[1], record)
  for _, other in ipairs({ KEYS[3], KEYS[4], KEYS[6] }) do redis.call('ZREM', other, ARGV[2]) end
  redis.call('ZADD', KEYS[5], '0', ARGV[2])
end
return { record, redis.call('HMGET', KEYS[2], 'label', 'hint', 'created_at') }
