-- Writes the event of an act together with the act. Scripts that govern begin with this part, which takes its arguments from
-- the ends of the lists.
--
-- KEYS  at the end: the events, and the numbers of events
-- ARGV  at the end: the event (empty: none), its id, and the time before which events are dropped
local NUMBERS, EVENTS = table.remove(KEYS), table.remove(KEYS)
local BEGINS, EVENT_ID, EVENT = tonumber(table.remove(ARGV)), table.remove(ARGV), table.remove(ARGV)
-- More old events than an addition adds, so that none accumulate.
local PRUNED_AT_ONCE = '64'

local function prune_events()
  local last
  for _, entry in ipairs(redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', PRUNED_AT_ONCE)) do
    local id = entry[2][2]
    -- An id begins with its time in milliseconds.
    if struct.unpack('>I6', id) >= BEGINS then break end
    redis.call('HDEL', NUMBERS, id)
    last = entry[1]
  end
  if last then redis.call('XTRIM', EVENTS, 'MINID', (string.match(last, '^%d+') + 1) .. '-0') end
end

local function append_event(id, event)
  local last = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', '1')[1]
  local number = string.format('%.0f', (last and string.match(last[1], '^%d+') or 0) + 1)
  redis.call('XADD', EVENTS, number .. '-0', 'id', id, 'event', event)
  redis.call('HSET', NUMBERS, id, number)
  prune_events()
end

local function write_event()
  if EVENT ~= '' then append_event(EVENT_ID, EVENT) end
end

