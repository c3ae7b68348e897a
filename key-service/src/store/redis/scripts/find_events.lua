-- Finds events of a key or of a group by the index. An index to which a version without one has not added its events, or from
-- which that version has not taken dropped events, is mended by some events, and nothing is returned.
--
-- KEYS  the events, the numbers of events, the index of events
-- ARGV  the entries of the index between which to look, and the further words of `ZRANGE`
local EVENTS, NUMBERS, INDEX = unpack(KEYS)

local last = redis.call('HGET', NUMBERS, '') or '0'
-- A millisecond of Redis.
local others = redis.call('XRANGE', EVENTS, '(' .. last .. '-0', '+', 'COUNT', '100')
for _, event in ipairs(others) do
  last = string.match(event[1], '^%d+')
  for _, entry in ipairs(index_entries(last, event[2])) do redis.call('ZADD', INDEX, '0', entry) end
end
if #others > 0 then
  redis.call('HSET', NUMBERS, '', last)
  return false
end

local found, is_complete = {}, true
for n, entry in ipairs(redis.call('ZRANGE', INDEX, unpack(ARGV))) do
  local id = string.format('%.0f-0', (struct.unpack('>I6', entry, 17)))
  found[n] = redis.call('XRANGE', EVENTS, id, id)[1]
  if not found[n] then
    redis.call('ZREM', INDEX, entry)
    is_complete = false
  end
end
return is_complete and found
