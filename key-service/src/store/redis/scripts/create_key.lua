-- Makes a key of an account, unless the idempotency key belongs to another key. A repetition changes nothing. Returns
-- the result and, if there is a key, the key's id; nothing if the account does not exist.
--
-- KEYS  the account, the list of keys, the key, the record of the idempotency key, the active keys, the keys with an
-- expiry
-- ARGV  the key's id, keys that the account may have, the request's digest (empty: no idempotency key), now, the end
-- of the record and the record's life in milliseconds, the key's id as bytes and balances, then names and values of
-- the key's texts
local account, list, key, promise = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, most = ARGV[1], tonumber(ARGV[2])
local request, now, ends, lives = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
if redis.call('EXISTS', account) == 0 then return false end

if request ~= '' then
  local promised = redis.call('GET', promise)
  if promised then
    local of, until_, made = string.match(promised, '^(%S+) (%S+) (%S+)$')
    if tonumber(until_) > now then
      if of ~= request then return { 'reused' } end
      return { made == id and 'new' or 'replayed', made }
    end
  end
end

local is_new = redis.call('EXISTS', key) == 0
if is_new and tonumber(redis.call('HGET', account, 'keys') or '0') >= most then return { 'full' } end

if request ~= '' then
  redis.call('SET', promise, request .. ' ' .. ends .. ' ' .. id, 'PX', lives)
end

if is_new then
  redis.call('HSET', account, ARGV[7], ARGV[8])
  redis.call('HSET', key, unpack(ARGV, 9))
  redis.call('ZADD', list, '0', id)
  redis.call('ZADD', KEYS[5], '0', id)
  local expires_at = struct.unpack('>d', ARGV[8], 33)
  if expires_at < math.huge then redis.call('ZADD', KEYS[6], string.format('%.0f', expires_at), id) end
  redis.call('HINCRBY', account, 'keys', '1')
end
return { 'new', id }
