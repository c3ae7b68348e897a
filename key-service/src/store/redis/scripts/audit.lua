-- Reads the books of an account at a single moment: the next entries of the journal and, if no more follow, all
-- figures that have to agree with the entries.
--
-- KEYS  the account, the account's holds, journal and deposits
-- ARGV  the id behind which to read the journal, the most additions to read, then the ids of keys as bytes
--
-- Returns nothing if the account does not exist. Else: the additions; if these are the last, the account's funds, the
-- balances of each key, the sums of open holds by key, all deposits.
local additions = redis.call('XRANGE', KEYS[3], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
local funds = redis.call('HGET', KEYS[1], 'funds')
if not funds then return false end
if #additions == tonumber(ARGV[2]) then return { additions } end

local keys = #ARGV > 2 and redis.call('HMGET', KEYS[1], unpack(ARGV, 3)) or {}
local sums = {}
for _, hold in ipairs(redis.call('HVALS', KEYS[2])) do
  if #hold >= 68 then
    local _, amount = struct.unpack('>c1d', hold)
    local key = string.sub(hold, 51, 66)
    sums[key] = (sums[key] or 0) + amount
  end
end
local holds = {}
for key, sum in pairs(sums) do holds[#holds + 1], holds[#holds + 2] = key, string.format('%.0f', sum) end
return { additions, funds, keys, holds, redis.call('HVALS', KEYS[4]) }
