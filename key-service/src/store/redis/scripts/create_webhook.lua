-- Creates a webhook of an account, unless the idempotency key belongs to another webhook or the list is full. A repetition
-- changes nothing. Returns the result and, if there is one, the webhook's id; nothing where the account does not exist.
--
-- KEYS  the account, the list of webhooks, the webhook, the record of the idempotency key
-- ARGV  the webhook's id, the longest list; the request's digest (empty: no idempotency key), now, the end of the
--       idempotency record and its life in milliseconds; then the webhook's fields and their values
local account, list, webhook, idempotency = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, request = ARGV[1], ARGV[3]
if call('EXISTS', account) == 0 then return false end
local made = idempotent(idempotency, request, tonumber(ARGV[4]))
if made == 'reused' then return { 'reused' } end
if made then return { made == id and 'new' or 'replayed', made } end
if call('EXISTS', webhook) == 1 then return { 'new', id } end
if call('ZCARD', list) >= tonumber(ARGV[2]) then return { 'full' } end
keep_idempotency_record(idempotency, request, ARGV[5], ARGV[6], id)
call('HSET', webhook, unpack(ARGV, 7))
call('ZADD', list, '0', id)
return { 'new', id }
