-- Changes settings of a key, unless the key is revoked; a revocation is such a change. Returns whether the key was changed,
-- then the resulting record and texts; nothing where the key does not exist.
--
-- KEYS  the account, the account's keys by status: active, expired, revoked; the keys with an expiry; the key
-- ARGV  the key's id as bytes, and as text; the number of changed settings in the record, their names and values as
--       doubles; then names and values of changed texts
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record then return false end
local key, texts = read_key(ARGV[1], record), 4 + 2 * tonumber(ARGV[3])
local is_changed = key.revoked_at == NEVER
if is_changed then
  for n = 4, texts - 1, 2 do key[ARGV[n]] = struct.unpack('>d', ARGV[n + 1]) end
  record = write_key(key)
  redis.call('HSET', KEYS[1], ARGV[1], record)
  list_key(KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[2], key)
  if ARGV[texts] then redis.call('HSET', KEYS[6], unpack(ARGV, texts)) end
end
return { is_changed and 1 or 0, record, redis.call('HMGET', KEYS[6], 'label', 'hint', 'created_at') }
