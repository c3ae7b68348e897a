-- Begins an attempt for each due delivery of a webhook. Returns the events and their records in turn. A record begins with
-- the number of attempts.
--
-- KEYS  the deliveries, their times
-- ARGV  now, the time at which claimed deliveries fall due again, the most deliveries
local claimed = {}
for _, event in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', '0', ARGV[3])) do
  local attempts, rest = string.match(redis.call('HGET', KEYS[1], event) or '', '^(%d+)( .*)$')
  if attempts then
    local record = string.format('%d', attempts + 1) .. rest
    redis.call('HSET', KEYS[1], event, record)
    redis.call('ZADD', KEYS[2], ARGV[2], event)
    claimed[#claimed + 1] = event
    claimed[#claimed + 1] = record
  else
    redis.call('ZREM', KEYS[2], event)
  end
end
return claimed
