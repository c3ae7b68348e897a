-- Makes a key of an account, unless its idempotency key belongs to another one. Repeating it changes nothing.
-- Returns the result and, where there is one, the key's id; nothing where the account does not exist.
--
-- KEYS  the account, its list of keys, the key, the promise of the idempotency key
-- ARGV  the key's id, the request's digest (empty: no idempotency key), now, when the promise ends, milliseconds that
--       it lives, the key's id as bytes and its balances, then the names and values of its texts
local account, list, key, promise = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, request, now, ends, lives = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
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
  redis.call('SET', promise, request .. ' ' .. ends .. ' ' .. id, 'PX', lives)
end

if redis.call('EXISTS', key) == 0 then
  redis.call('HSET', account, ARGV[6], ARGV[7])
  redis.call('HSET', key, unpack(ARGV, 8))
  redis.call('ZADD', list, '0', id)
  redis.call('HINCRBY', account, 'keys', '1')
end
return { 'new', id }
