-- Changes the settings that the owner of a key may change. Returns the resulting balances and texts,
-- 'revoked' where the key cannot be changed any more, nothing where the key does not exist.
--
-- KEYS  the account, the key
-- ARGV  the key's id as bytes; limit and expiry as doubles (empty: as it was), and the label where it changes
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record then return false end
local limit, high, low, held, expires_at, revoked_at, last_used_at = struct.unpack('>ddddddd', record)
if revoked_at < math.huge then return redis.status_reply('revoked') end
if ARGV[2] ~= '' then limit = struct.unpack('>d', ARGV[2]) end
if ARGV[3] ~= '' then expires_at = struct.unpack('>d', ARGV[3]) end
record = struct.pack('>ddddddd', limit, high, low, held, expires_at, revoked_at, last_used_at)
redis.call('HSET', KEYS[1], ARGV[1], record)
if ARGV[4] then redis.call('HSET', KEYS[2], 'label', ARGV[4]) end
return { record, redis.call('HGETALL', KEYS[2]) }
