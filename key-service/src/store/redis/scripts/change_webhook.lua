-- Changes a webhook and its deliveries, unless the webhook has changed since it was read, or would have too many
-- deliveries, and writes the event of the change, if any (`events.lua`). Returns 1 where changed.
--
-- KEYS  the webhook, its deliveries, their times; where the webhook is removed, its attempts and the list of webhooks
-- ARGV  the webhook's record and cursor as read; the record and cursor to write; 1 to drop all deliveries; the most
--       deliveries; the time of new ones; then event and record of each. Where the webhook is removed, its id comes third
local webhook, deliveries, times, attempts, list = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local read = redis.call('HMGET', webhook, 'record', 'cursor')
if read[1] ~= ARGV[1] or read[2] ~= ARGV[2] then return 0 end
if list then
  redis.call('ZREM', list, ARGV[3])
  redis.call('DEL', webhook, deliveries, times, attempts)
  return 1
end
if ARGV[5] == '1' then redis.call('DEL', deliveries, times) end
if redis.call('HLEN', deliveries) + (#ARGV - 7) / 2 > tonumber(ARGV[6]) then return 0 end
redis.call('HSET', webhook, 'record', ARGV[3], 'cursor', ARGV[4])
for at = 8, #ARGV, 2 do
  if redis.call('HSETNX', deliveries, ARGV[at], ARGV[at + 1]) == 1 then
    redis.call('ZADD', times, ARGV[7], ARGV[at])
  end
end
write_event()
return 1
