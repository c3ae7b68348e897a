-- Creates a key of an account, unless the idempotency key belongs to another key. A repetition changes nothing. Returns
-- the result and, if there is a key, the key's id; nothing if the account does not exist.
--
-- KEYS  the account, the account's keys by status: active, expired, revoked; the keys with an expiry; the list of keys,
--       the key, the record of the idempotency key; the keys of the key's group, if any
-- ARGV  the key's id as bytes, and as text; the key's record; keys that the account may have; the request's digest
--       (empty: no idempotency key), now, the end of the idempotency record and its life in milliseconds; the revision of
--       the account's groups, and 1 where the group takes no keys; then names and values of the key's texts
local account, list, key, idempotency, group = KEYS[1], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local id, record, most = ARGV[2], ARGV[3], tonumber(ARGV[4])
local request, now = ARGV[5], tonumber(ARGV[6])
if call('EXISTS', account) == 0 then return false end

local created = idempotent(idempotency, request, now)
if created == 'reused' then return { 'reused' } end
if created then return { created == id and 'new' or 'replayed', created } end

local is_new = call('EXISTS', key) == 0
if is_new and tonumber(call('HGET', account, 'keys') or '0') >= most then return { 'full' } end
if group and (call('HGET', account, 'groups') or '0') ~= ARGV[9] then return { 'stale' } end
if group and ARGV[10] == '1' then return { 'bad_group' } end

keep_idempotency_record(idempotency, request, ARGV[7], ARGV[8], id)

if is_new then
  call('HSET', account, ARGV[1], record)
  call('HSET', key, unpack(ARGV, 11))
  call('ZADD', list, '0', id)
  if group then call('ZADD', group, '0', id) end
  list_key(KEYS[2], KEYS[3], KEYS[4], KEYS[5], id, read_key(ARGV[1], record))
  call('HINCRBY', account, 'keys', '1')
  write_event()
end
return { 'new', id }
