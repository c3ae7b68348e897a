-- A look at the books of an account, all of one moment: the next entries of its journal and, where no more entries
-- follow, everything that they have to agree with.
--
-- KEYS  the account, its records, leases, journal, archive and deposits, then API keys
-- ARGV  the number of the last entry that was read (nothing: begin behind those that are gone), the most entries to read
--
-- Answers nothing where there is no such account. Else: credit, held, and how many late captures there were; the number
-- up to which entries are gone; the sums of those by key, when it begins; the number, key and charge of each entry;
-- whether there may be more. Unless there are: used and held of each key; the sum of open holds by key; all deposits.
local ACCOUNT, RECORDS, LEASES, JOURNAL, ARCHIVE, DEPOSITS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local BEFORE_KEYS, READ_AT_ONCE = 6, 1000

local account = redis.call('HMGET', ACCOUNT, 'credit', 'held', 'late')
if not account[1] then return false end
account[3] = account[3] or '0'
local gone_until = redis.call('HGET', ARCHIVE, 'until') or '0'

local archive, from = {}, ARGV[1]
if from == '' then
  from = gone_until
  local sums = redis.call('HGETALL', ARCHIVE)
  for at = 1, #sums, 2 do
    if sums[at] ~= 'until' then archive[#archive + 1], archive[#archive + 2] = sums[at], sums[at + 1] end
  end
end

local numbered = redis.call('ZRANGE', JOURNAL, '(' .. from, '+inf', 'BYSCORE', 'LIMIT', '0', ARGV[2], 'WITHSCORES')
local entries, generations = {}, {}
for at = 1, #numbered, 2 do generations[#generations + 1] = numbered[at] end
for n, record in ipairs(#generations > 0 and redis.call('HMGET', RECORDS, unpack(generations)) or {}) do
  local key, charged = string.match(record or '', '^%a+ (%S+) (%S+)')
  entries[n] = { numbered[2 * n], key or '', charged or '0' }
end
if #entries == tonumber(ARGV[2]) then return { account, gone_until, archive, entries, 1, {}, {}, {} } end

local keys = {}
for at = BEFORE_KEYS + 1, #KEYS do keys[#keys + 1] = redis.call('HMGET', KEYS[at], 'used', 'held') end

local sums, ids = {}, {}
local function add_up()
  for _, record in ipairs(#ids > 0 and redis.call('HMGET', RECORDS, unpack(ids)) or {}) do
    local key, amount = string.match(record or '', '^open (%S+) (%S+)')
    if key then sums[key] = (sums[key] or 0) + tonumber(amount) end
  end
  ids = {}
end
for _, lease in ipairs(redis.call('ZRANGE', LEASES, 0, -1)) do
  ids[#ids + 1] = string.match(lease, ' (.*)$')
  if #ids == READ_AT_ONCE then add_up() end
end
add_up()
local holds = {}
for key, sum in pairs(sums) do holds[#holds + 1], holds[#holds + 2] = key, string.format('%.0f', sum) end

return { account, gone_until, archive, entries, 0, keys, holds, redis.call('HVALS', DEPOSITS) }
