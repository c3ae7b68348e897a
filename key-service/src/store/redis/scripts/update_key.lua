-- Changes the settings that the owner of a key may change. Returns the resulting balances and texts,
-- 'revoked' where the key cannot be changed any more, nothing where the key does not exist.
--
-- KEYS  the account, the key, the account's keys by status: active, expired, revoked; the keys with an expiry
-- ARGV  the key's id as bytes, and as text; limit and expiry as doubles (empty: unchanged), and a changed label
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record then return false end
local limit, high, low, held, expires_at, revoked_at, last_used_at = struct.unpack('>ddddddd', record)
if revoked_at < math.huge then return redis.status_reply('revoked') end
if ARGV[3] ~= '' then limit = struct.unpack('>d', ARGV[3]) end
if ARGV[4] ~= '' then expires_at = struct.unpack('>d', ARGV[4]) end
record = struct.pack('>ddddddd', limit, high, low, held, expires_at, revoked_at, last_used_at)
redis.call('HSET', KEYS[1], ARGV[1], record)
-- An expired key is moved to the expired keys on the next look-up by status.
redis.call('ZREM', KEYS[4], ARGV[2])
redis.call('ZADD', KEYS[3], '0', ARGV[2])
if expires_at < math.huge then
  redis.call('ZADD', KEYS[6], string.format('%.0f', expires_at), ARGV[2])
else
  redis.call('ZREM', KEYS[6], ARGV[2])
end
if ARGV[5] then redis.call('HSET', KEYS[2], 'label', ARGV[5]) end
return { record, redis.call('HMGET', KEYS[2], 'label', 'hint', 'created_at') }
