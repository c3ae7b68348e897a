-- Appends an event: its id, then names and values of fields. Drops some that are too old. Begins with `event_index`.
--
-- An event is kept with its id first. A threshold has the name under which it is told once, and its numbers; anything else is
-- the event as JSON.
local append_event = tells and function(...)
  local fields = { 'id', ... }
  local id = fields[2]
  local last = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', '1')[1]
  local before = last and string.match(last[1], '^%d+') or '0'
  local number = string.format('%.0f', before + 1)
  redis.call('XADD', EVENTS, number .. '-0', unpack(fields))
  redis.call('HSET', NUMBERS, id, number)
  for _, entry in ipairs(index_entries(number, fields)) do redis.call('ZADD', INDEX, '0', entry) end
  -- Behind an event that is not in the index, `find_events.lua` goes on.
  if (redis.call('HGET', NUMBERS, '') or '0') == before then redis.call('HSET', NUMBERS, '', number) end
  -- An id begins with its time in milliseconds.
  local function is_old(entry) return struct.unpack('>I6', entry[2][2]) < BEGINS end
  if not is_old(redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', '1')[1]) then return number end
  local dropped
  -- More than an addition adds, so that none accumulate.
  for _, entry in ipairs(redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', '64')) do
    if not is_old(entry) then break end
    fields, dropped = entry[2], string.match(entry[1], '^%d+')
    redis.call('HDEL', NUMBERS, fields[2])
    if fields[3] == 'once' then redis.call('HDEL', NUMBERS, fields[4]) end
    for _, entry in ipairs(index_entries(dropped, fields)) do redis.call('ZREM', INDEX, entry) end
  end
  redis.call('XTRIM', EVENTS, 'MINID', (dropped + 1) .. '-0')
  return number
end

