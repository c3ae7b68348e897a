-- Creates a group of an account, unless the idempotency key belongs to another group, or another group has the external id.
-- A repetition changes nothing. Returns the result, and the id of another group; nothing where the account does not exist.
--
-- KEYS  the account, the list of groups, the external ids, the group, the record of the idempotency key; the parent, if any
-- ARGV  the group's field, id as text, external id (empty: none) and record; the most groups; the request's digest (empty:
--       no idempotency key), now, the end of the idempotency record and its life in milliseconds; the revision of the
--       account's groups, and 1 where the parent cannot be one; then names and values of the group's texts
local account, list, named, group, idempotency, parent = unpack(KEYS)
if call('EXISTS', account) == 0 then return false end
local made = idempotent(idempotency, ARGV[6], tonumber(ARGV[7]))
if made == 'reused' then return { 'reused' } end
if made and made ~= ARGV[2] then return { 'replayed', made } end
if made then return { 'new' } end
local other = ARGV[3] ~= '' and call('HGET', named, ARGV[3])
if other then return { 'existing', other } end
if parent and (call('HGET', account, 'groups') or '0') ~= ARGV[10] then return { 'stale' } end
if parent and ARGV[11] == '1' then return { 'bad_parent' } end
if call('HEXISTS', account, ARGV[1]) == 1 then return { 'new' } end
if call('ZCARD', list) >= tonumber(ARGV[5]) then return { 'full' } end
keep_idempotency_record(idempotency, ARGV[6], ARGV[8], ARGV[9], ARGV[2])
call('HSET', account, ARGV[1], ARGV[4])
call('HSET', group, unpack(ARGV, 12))
call('ZADD', list, '0', ARGV[2])
if ARGV[3] ~= '' then call('HSET', named, ARGV[3], ARGV[2]) end
if parent then
  call('HINCRBY', parent, 'children', '1')
  call('HINCRBY', account, 'groups', '1')
end
write_event()
return { 'new' }
