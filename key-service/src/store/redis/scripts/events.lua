-- Appends an event: its id, then names and values of fields. Drops some that are too old.
--
-- An event is kept with its id first. A threshold has the name under which it is told once, and its numbers; anything else is
-- the event as JSON.
local append_event = tells and function(id, ...)
  local last = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', '1')[1]
  local number = string.format('%.0f', (last and string.match(last[1], '^%d+') or 0) + 1)
  redis.call('XADD', EVENTS, number .. '-0', 'id', id, ...)
  redis.call('HSET', NUMBERS, id, number)
  local dropped
  -- More than an addition adds, so that none accumulate.
  for _, entry in ipairs(redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', '64')) do
    local fields = entry[2]
    -- An id begins with its time in milliseconds.
    if struct.unpack('>I6', fields[2]) >= BEGINS then break end
    redis.call('HDEL', NUMBERS, fields[2])
    if fields[3] == 'once' then redis.call('HDEL', NUMBERS, fields[4]) end
    dropped = entry[1]
  end
  if dropped then redis.call('XTRIM', EVENTS, 'MINID', (string.match(dropped, '^%d+') + 1) .. '-0') end
  return number
end

