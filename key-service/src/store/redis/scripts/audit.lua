-- Reads the books of an account at a single moment: the next entries of the journal and, if no more follow, all
-- figures that have to agree with the entries.
--
-- KEYS  the account, the account's holds, journal and deposits
-- ARGV  the id behind which to read the journal, the most additions to read, then fields of keys and groups
--
-- Returns nothing if the account does not exist. Else: the additions; if these are the last, the account's funds, the
-- balances of each field, the open holds, all deposits.
local additions = redis.call('XRANGE', KEYS[3], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
local funds = redis.call('HGET', KEYS[1], 'funds')
if not funds then return false end
if #additions == tonumber(ARGV[2]) then return { additions } end

local balances = #ARGV > 2 and redis.call('HMGET', KEYS[1], unpack(ARGV, 3)) or {}
return { additions, funds, balances, redis.call('HVALS', KEYS[2]), redis.call('HVALS', KEYS[4]) }
