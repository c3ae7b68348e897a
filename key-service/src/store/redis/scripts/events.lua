-- Appends an event: its id, then names and values of fields. Drops the oldest that are not kept any more. Begins with
-- `event_index`.
--
-- An event is kept with its id first. A threshold has the name under which it is told once, and its numbers; anything else is
-- the event as JSON. Before that last field stand the bytes of the events appended before this one, so that two events
-- tell how many lie between them. Events of a version that did not count have none: they count as nothing.
local append_event = tells and function(id, ...)
  local function bytes_before(fields)
    return fields[#fields - 3] == 'bytes' and tonumber(fields[#fields - 2]) or 0
  end
  local fields = { 'id', id, ... }
  local last = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', '1')[1]
  local before = last and string.match(last[1], '^%d+') or '0'
  local number = string.format('%.0f', before + 1)
  local counted, size = last and bytes_before(last[2]) + #last[2][#last[2]] or 0, #fields[#fields]
  table.insert(fields, #fields - 1, 'bytes')
  table.insert(fields, #fields - 1, string.format('%.0f', counted))
  redis.call('XADD', EVENTS, number .. '-0', unpack(fields))
  redis.call('HSET', NUMBERS, id, number)
  for _, entry in ipairs(index_entries(number, fields)) do redis.call('ZADD', INDEX, '0', entry) end
  -- Behind an event that is not in the index, `find_events.lua` goes on.
  if (redis.call('HGET', NUMBERS, '') or '0') == before then redis.call('HSET', NUMBERS, '', number) end
  -- In a store that is nearly full, as much is dropped as was added.
  local begins, most, most_bytes, needed = struct.unpack('>dddd', EVENTS_KEPT)
  needed = needed * size
  -- An id begins with its time in milliseconds.
  local function is_kept(entry)
    return needed <= 0 and struct.unpack('>I6', entry[2][2]) >= begins
      and number - string.match(entry[1], '^%d+') < most and counted + size - bytes_before(entry[2]) <= most_bytes
  end
  if is_kept(redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', '1')[1]) then return number end
  local dropped
  -- More than an addition adds, so that none accumulate.
  for _, entry in ipairs(redis.call('XRANGE', EVENTS, '-', '(' .. number .. '-0', 'COUNT', '64')) do
    if is_kept(entry) then break end
    fields, dropped = entry[2], string.match(entry[1], '^%d+')
    needed = needed - #fields[#fields]
    redis.call('HDEL', NUMBERS, fields[2])
    if fields[3] == 'once' then redis.call('HDEL', NUMBERS, fields[4]) end
    for _, entry in ipairs(index_entries(dropped, fields)) do redis.call('ZREM', INDEX, entry) end
  end
  if dropped then redis.call('XTRIM', EVENTS, 'MINID', string.format('%.0f-0', dropped + 1)) end
  return number
end

