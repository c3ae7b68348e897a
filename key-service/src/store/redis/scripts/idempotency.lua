-- Idempotency keys. Scripts that honour them begin with this part, after `key`.

-- What a live idempotency key did: the id of the key that it made or rotated, or 'reused' where its request was another.
local function idempotent(name, request, now)
  local earlier = request ~= '' and call('GET', name)
  if not earlier then return end
  local of, until_, key = string.match(earlier, '^(%S+) (%S+) (%S+)$')
  if tonumber(until_) <= now then return end
  return of == request and key or 'reused'
end

local function keep_idempotency_record(name, request, ends, life, key)
  if request ~= '' then call('SET', name, request .. ' ' .. ends .. ' ' .. key, 'PX', life) end
end

