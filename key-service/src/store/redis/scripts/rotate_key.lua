-- Gives a key a new credential, unless the idempotency key was used before or the caller found a reason to refuse. A
-- repetition changes nothing. Returns the result, and of 'rotated' the number of the credential, and the digest of one
-- that the key accepts no more (empty: none); nothing where the key does not exist.
--
-- KEYS  the account, the key, the record of the idempotency key
-- ARGV  the key's id as bytes, and as text; the request's digest (empty: no idempotency key), now, the end of the
--       idempotency record and its life in milliseconds; the key's revision that the caller has seen; the rotation (empty:
--       refused), as at the end of a record; the digest of the credential, and its hint
local account, texts, idempotency = KEYS[1], KEYS[2], KEYS[3]
local request, digest = ARGV[3], ARGV[9]
local record = call('HGET', account, ARGV[1])
if not record then return false end
local key = read_key(ARGV[1], record)
read_rest(key, record, KEY_SIZE + 1)
local current, previous = unpack(call('HMGET', texts, 'credential', 'previous_credential'))
local number = key.rotation and read('>d', key.rotation) or 0
if digest == current then return { 'rotated', number, '' } end
if digest == previous then return { 'rotated', number - 1, '' } end

local earlier = idempotent(idempotency, request, tonumber(ARGV[4]))
if earlier then return { earlier == 'reused' and 'reused' or 'replayed', 0, '' } end
if (call('HGET', texts, 'revision') or '0') ~= ARGV[7] then return { 'stale', 0, '' } end
if ARGV[8] == '' then return { 'refused', 0, '' } end
if key.revoked_at < NEVER then return { 'stale', 0, '' } end

key.rotation = ARGV[8]
call('HSET', account, ARGV[1], write_key(key) .. write_rest(key))
call('HINCRBY', texts, 'revision', '1')
call('HSET', texts, 'hint', ARGV[10], 'credential', digest, 'previous_credential', current or '')
keep_idempotency_record(idempotency, request, ARGV[5], ARGV[6], ARGV[2])
write_event()
return { 'rotated', number + 1, previous or '' }
