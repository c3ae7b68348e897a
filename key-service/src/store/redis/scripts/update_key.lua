-- Changes a key, unless the key is revoked; a revocation is such a change. Returns 'changed', 'revoked', or 'stale' where a
-- revision has changed since, with the resulting record and texts; nothing where the key does not exist.
--
-- KEYS  the account, the account's keys by status: active, expired, revoked; the keys with an expiry; the key; where the
--       key is moved, the keys of the group before and of the group after (the account: no group)
-- ARGV  the key's id as bytes, and as text; now; the revisions of the key and of the account's groups that the caller has
--       seen (empty: any); the number of changed settings in the record, their names and values as doubles; then group and
--       bounds, as at the end of a record, and names and values of changed texts
local record = call('HGET', KEYS[1], ARGV[1])
if not record then return false end
local key, after = read_key(ARGV[1], record), 7 + 2 * tonumber(ARGV[6])
read_rest(key, record, KEY_SIZE + 1)
local result = key.revoked_at < NEVER and 'revoked' or 'changed'
if ARGV[4] ~= '' and (call('HGET', KEYS[6], 'revision') or '0') ~= ARGV[4] then result = 'stale' end
if ARGV[5] ~= '' and (call('HGET', KEYS[1], 'groups') or '0') ~= ARGV[5] then result = 'stale' end
if result == 'changed' then
  for n = 7, after - 1, 2 do key[ARGV[n]] = read('>d', ARGV[n + 1]) end
  if ARGV[after] then
    new_rest(key, ARGV[after], tonumber(ARGV[3]))
    call('HINCRBY', KEYS[6], 'revision', '1')
  end
  record = write_key(key) .. write_rest(key)
  call('HSET', KEYS[1], ARGV[1], record)
  list_key(KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[2], key)
  if KEYS[7] then
    if KEYS[7] ~= KEYS[1] then call('ZREM', KEYS[7], ARGV[2]) end
    if KEYS[8] ~= KEYS[1] then call('ZADD', KEYS[8], '0', ARGV[2]) end
  end
  if ARGV[after + 1] then call('HSET', KEYS[6], unpack(ARGV, after + 1)) end
  write_event()
end
return { result, record, call('HMGET', KEYS[6], 'label', 'hint', 'created_at', 'metadata') }
