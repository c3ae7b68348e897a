-- What commands do to one account and its keys: `domain/ledger.rs`, spelled for Redis in its order and its words. Where
-- the two differ, this one is wrong.
--
-- Every record is read once, the commands are decided one by one, every record that changed is written once. Nothing
-- is written before the last decision, so that an error leaves everything as it was.
--
-- Amounts are nano-USD below 2^53, exact as Lua's numbers. What was billed to a key may add up to more: it is only
-- compared with a limit, and written by adding to it. A usage is a text; it is reckoned with only where it is counted
-- (`domain/usage.rs`), and bounded there.
--
-- KEYS  the account, its records, leases, journal, archive, deposits and counters of today, then the keys that commands
--       name
-- ARGV  now, the most entries of the journal, the seconds that counters are kept, then eight for each command: its name,
--       its key's place among the keys (0: none), its record's id, and up to five fields
--
-- Answers a text for each command; nothing where there is no such account.

local MAX = 9000000000000000 -- `NanoUsd::MAX`
local COUNTED, COUNTED_PER_REQUEST = 9007199254740991, 1000000000000
local ACCOUNT, RECORDS, LEASES, JOURNAL, ARCHIVE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local DEPOSITS, COUNTERS = KEYS[6], KEYS[7]
local BEFORE_KEYS, BEFORE_COMMANDS, PER_COMMAND = 7, 3, 8
local now, most_entries = tonumber(ARGV[1]), tonumber(ARGV[2])

local function written(n) return string.format('%.0f', n) end
local function left_after(n, taken) return math.max(n - taken, 0) end

-- Load.

local function record_from(text)
  if not text then return { state = 'none' } end
  local state, rest = string.match(text, '^(%a+) (.*)$')
  if state == 'open' then
    local key, amount, lease_until, cost, usage, model =
      string.match(rest, '^(%S+) (%S+) (%S+) (%S+) (%S+ %S+ %S+) (.*)$')
    return { state = state, key = key, amount = tonumber(amount), lease_until = tonumber(lease_until),
             cost = tonumber(cost), usage = usage, model = model }
  end
  local key, charged, at, cost, usage, estimated, model =
    string.match(rest, '^(%S+) (%S+) (%S+) (%S+) (%S+ %S+ %S+) (%S+) (.*)$')
  return { state = state, key = key, charged = tonumber(charged), at = tonumber(at),
           cost = tonumber(cost), usage = usage, estimated = estimated, model = model }
end

local function record_text(record)
  if record.state == 'open' then
    return table.concat({ 'open', record.key, written(record.amount), written(record.lease_until),
                          written(record.cost), record.usage, record.model }, ' ')
  end
  return table.concat({ record.state, record.key, written(record.charged), written(record.at),
                        written(record.cost), record.usage, record.estimated, record.model }, ' ')
end

local money = redis.call('HMGET', ACCOUNT, 'credit', 'held', 'entries')
if not money[1] then return false end
local account = { credit = tonumber(money[1]), held = tonumber(money[2]), entries = tonumber(money[3]) or 0,
                  changed = false }

local keys = {}
for place = 1, #KEYS - BEFORE_KEYS do
  local name = KEYS[BEFORE_KEYS + place]
  local read = redis.call('HMGET', name, 'limit', 'used', 'held', 'expires_at', 'revoked_at')
  if read[2] then
    keys[place] = { name = name, id = string.sub(name, -35), billed = 0, changed = false,
                    limit = tonumber(read[1]), used = tonumber(read[2]), held = tonumber(read[3]),
                    expires_at = tonumber(read[4]), revoked_at = tonumber(read[5]) }
  end
end

local ids, records = {}, {}
for at = BEFORE_COMMANDS + 1, #ARGV, PER_COMMAND do
  local id = ARGV[at + 2]
  if ARGV[at] ~= 'deposit' then
    ids[#ids + 1] = id
  else
    records[id] = { state = redis.call('HEXISTS', DEPOSITS, id) == 1 and 'deposited' or 'none' }
  end
end
if #ids > 0 then
  for n, text in ipairs(redis.call('HMGET', RECORDS, unpack(ids))) do records[ids[n]] = record_from(text) end
end

-- What each record was before the commands, and the ids of those that changed.
local was, changed = {}, {}
local function put(id, record)
  if not was[id] then
    was[id] = records[id]
    changed[#changed + 1] = id
  end
  records[id] = record
end

-- The two pots that every payment comes out of.

-- The order of checks is part of the public contract.
local function may_not_spend(key)
  if key.revoked_at then return 'revoked' end
  if key.expires_at and key.expires_at <= now then return 'key_expired' end
  if key.limit and key.used >= key.limit then return 'limit_reached' end
  if account.credit <= 0 then return 'credit_empty' end
end

-- What no hold covers and nobody has spent.
local function available(key)
  local of_limit = key.limit and left_after(left_after(key.limit, key.used), key.held) or MAX
  return math.min(of_limit, left_after(account.credit, account.held))
end

local function set_aside(key, amount)
  account.held, key.held = account.held + amount, key.held + amount
  account.changed, key.changed = true, true
end

local function give_back(key, amount)
  account.held, key.held = left_after(account.held, amount), left_after(key.held, amount)
  account.changed, key.changed = true, true
end

local function bill(key, amount)
  account.credit = left_after(account.credit, amount)
  key.used, key.billed = key.used + amount, key.billed + amount
  account.changed, key.changed = true, true
  if amount > 0 then key.last_used_at = now end
end

-- The amount, or nothing and why not.
local function hold(key, least, enough, most)
  local refused = may_not_spend(key)
  if refused then return nil, refused end
  local left_of_limit = key.limit and left_after(key.limit, key.used) or MAX
  if left_of_limit < least then return nil, 'limit_reached' end
  if account.credit < least then return nil, 'credit_empty' end
  local left = math.min(left_of_limit, account.credit)
  local free = available(key)
  if free < math.min(math.max(enough, least), left) then return nil, 'reserved' end
  local amount = math.min(math.max(most, least), free)
  set_aside(key, amount)
  return amount
end

local function extend(key, open, most, cost, usage, lease_until)
  local more = 0
  if not key.revoked_at then more = math.min(left_after(most, open.amount), available(key)) end
  set_aside(key, more)
  -- Reports may overtake each other; the one that costs most is the latest.
  if cost < open.cost then cost, usage = open.cost, open.usage end
  return { state = 'open', key = open.key, model = open.model, amount = open.amount + more,
           cost = cost, usage = usage, lease_until = math.max(open.lease_until, lease_until) }
end

-- What was settled in these commands: the numbers of their entries, and by key and model what they add to the counters.
local numbers, counts, late = {}, {}, 0

local function counted(usage)
  local prompt, cached, completion = string.match(usage, '^(%S+) (%S+) (%S+)$')
  return math.min(tonumber(prompt), COUNTED_PER_REQUEST), math.min(tonumber(cached), COUNTED_PER_REQUEST),
         math.min(tonumber(completion), COUNTED_PER_REQUEST)
end

local function stopped(n) return math.min(n, COUNTED) end

-- A settlement is the last entry of the journal, and counted beyond what was counted of it before.
local function enter(key, id, settled, requests, usage_before, charged)
  account.entries = account.entries + 1
  numbers[id] = account.entries
  local prompt, cached, completion = counted(settled.usage)
  local prompt_before, cached_before, completion_before = 0, 0, 0
  if usage_before then prompt_before, cached_before, completion_before = counted(usage_before) end
  local counter = key.id .. ' ' .. settled.model
  local sums = counts[counter] or { 0, 0, 0, 0, 0 }
  counts[counter] = { stopped(sums[1] + requests), stopped(sums[2] + left_after(prompt, prompt_before)),
                      stopped(sums[3] + left_after(cached, cached_before)),
                      stopped(sums[4] + left_after(completion, completion_before)), stopped(sums[5] + charged) }
  return settled
end

-- Resolves a hold: what it covers is billed from it, what the cost exceeds it by from what else is left.
local function settle(key, id, open, cost, usage, estimated, ending)
  local beyond = math.min(left_after(cost, open.amount), available(key))
  local charged = math.min(cost, open.amount) + beyond
  give_back(key, open.amount)
  bill(key, charged)
  local settled = { state = ending, key = open.key, model = open.model, charged = charged, at = now,
                    cost = cost, usage = usage, estimated = estimated }
  return enter(key, id, settled, 1, nil, charged)
end

-- A capture of what expired already: what expiry did not bill is billed now.
local function capture_late(key, id, expired, cost, usage, estimated)
  local missing = math.min(left_after(cost, expired.charged), available(key))
  bill(key, missing)
  late = late + 1
  local settled = { state = 'captured', key = expired.key, model = expired.model, charged = expired.charged + missing,
                    at = now, cost = math.max(cost, expired.charged), usage = usage, estimated = estimated }
  return enter(key, id, settled, 0, expired.usage, missing)
end

-- Decide.

local function deposit(id, amount)
  if records[id].state ~= 'none' then return 'deposited ' .. written(account.credit) end
  if amount <= 0 or account.credit + amount > MAX then return 'bad_deposit' end
  account.credit, account.changed = account.credit + amount, true
  put(id, { state = 'deposited', amount = written(amount) })
  return 'deposited ' .. written(account.credit)
end

local commands = {}

function commands.check(key) return may_not_spend(key) or 'allowed' end

function commands.hold(key, id, record, model, least, enough, most, lease_until)
  if record.state == 'open' then return 'held ' .. written(record.amount) end
  if record.state ~= 'none' then return 'gone' end
  local amount, refused = hold(key, tonumber(least), tonumber(enough), tonumber(most))
  if refused then return refused end
  put(id, { state = 'open', key = key.id, model = model, amount = amount,
            cost = 0, usage = '0 0 0', lease_until = tonumber(lease_until) })
  return 'held ' .. written(amount)
end

function commands.extend(key, id, record, most, cost, usage, lease_until)
  if record.state ~= 'open' then return 'gone' end
  local open = extend(key, record, tonumber(most), tonumber(cost), usage, tonumber(lease_until))
  put(id, open)
  return 'extended ' .. written(open.amount) .. (key.revoked_at and ' revoked' or ' active')
end

function commands.capture(key, id, record, cost, usage, estimated)
  if record.state == 'none' then return 'gone' end
  if record.state == 'open' then
    put(id, settle(key, id, record, tonumber(cost), usage, estimated, 'captured'))
  elseif record.state == 'expired' then
    put(id, capture_late(key, id, record, tonumber(cost), usage, estimated))
  end
  return record_text(records[id])
end

function commands.release(key, id, record)
  if record.state == 'open' then
    give_back(key, record.amount)
    put(id, { state = 'none' })
  end
  return 'released'
end

function commands.expire(key, id, record)
  if record.state ~= 'open' then return 'gone' end
  if record.lease_until > now then return 'not_due' end
  put(id, settle(key, id, record, record.cost, record.usage, 'estimated', 'expired'))
  return record_text(records[id])
end

local outcomes = {}
for at = BEFORE_COMMANDS + 1, #ARGV, PER_COMMAND do
  local name, key, id = ARGV[at], keys[tonumber(ARGV[at + 1])], ARGV[at + 2]
  local record, outcome = records[id], nil
  if name == 'deposit' then
    outcome = deposit(id, tonumber(ARGV[at + 3]))
  elseif not key then
    outcome = 'unknown_key'
  elseif record.key and record.key ~= key.id then
    -- A generation is billed to the key that it was held for; no other key can touch it.
    outcome = 'gone'
  else
    outcome = commands[name](key, id, record, unpack(ARGV, at + 3, at + PER_COMMAND - 1))
  end
  outcomes[#outcomes + 1] = outcome
end

-- Write.

local function write(command, name, arguments)
  if #arguments > 0 then redis.call(command, name, unpack(arguments)) end
end

local function lease(id, open) return open.key .. ' ' .. id end

local kept, removed, running, ended, deposits, entries, settled = {}, {}, {}, {}, {}, {}, 0
for _, id in ipairs(changed) do
  local before, after = was[id], records[id]
  if after.state == 'none' then
    removed[#removed + 1] = id
  elseif after.state == 'deposited' then
    deposits[#deposits + 1], deposits[#deposits + 2] = id, after.amount
  else
    kept[#kept + 1], kept[#kept + 2] = id, record_text(after)
  end
  local goes_on = after.state == 'open'
  if goes_on then running[#running + 1], running[#running + 2] = written(after.lease_until), lease(id, after) end
  -- A generation that was released and held again for another key goes on under another name.
  if before.state == 'open' and not (goes_on and after.key == before.key) then
    ended[#ended + 1] = lease(id, before)
  end
  if numbers[id] then
    settled = settled + 1
    entries[#entries + 1], entries[#entries + 2] = written(numbers[id]), id
  end
end

if account.changed then
  redis.call('HSET', ACCOUNT, 'credit', written(account.credit), 'held', written(account.held),
             'entries', written(account.entries))
end
for _, key in pairs(keys) do
  if key.changed then
    redis.call('HSET', key.name, 'held', written(key.held))
    if key.billed > 0 then
      redis.call('HSET', key.name, 'last_used_at', written(key.last_used_at))
      redis.call('HINCRBY', key.name, 'used', written(key.billed))
    end
  end
end
write('HSET', RECORDS, kept)
write('HDEL', RECORDS, removed)
write('HSET', DEPOSITS, deposits)
write('ZADD', LEASES, running)
write('ZREM', LEASES, ended)
if settled == 0 then return outcomes end

write('ZADD', JOURNAL, entries)
-- Tells an audit that an entry which it has read was changed.
if late > 0 then redis.call('HINCRBY', ACCOUNT, 'late', late) end

local counters, counted_now = {}, {}
for counter in pairs(counts) do counters[#counters + 1] = counter end
for n, before in ipairs(redis.call('HMGET', COUNTERS, unpack(counters))) do
  local counter, place = counters[n], 0
  local sums = counts[counter]
  for sum in string.gmatch(before or '', '%d+') do
    place = place + 1
    sums[place] = stopped(sums[place] + tonumber(sum))
  end
  counted_now[#counted_now + 1] = counter
  counted_now[#counted_now + 1] = string.format('%.0f %.0f %.0f %.0f %.0f', unpack(sums))
end
-- A counter that is new may be the first of its day.
if redis.call('HSET', COUNTERS, unpack(counted_now)) > 0 then redis.call('EXPIRE', COUNTERS, ARGV[3]) end

-- Beyond the journal's bound the oldest entries make room: their charges are added up by key, so that what a key used
-- still is what its entries and its archive say.
local excess = math.min(redis.call('ZCARD', JOURNAL) - most_entries, 2 * settled)
if excess > 0 then
  local numbered, oldest = redis.call('ZRANGE', JOURNAL, 0, excess - 1, 'WITHSCORES'), {}
  for at = 1, #numbered, 2 do oldest[#oldest + 1] = numbered[at] end
  for _, text in ipairs(redis.call('HMGET', RECORDS, unpack(oldest))) do
    local record = record_from(text)
    if record.key then redis.call('HINCRBY', ARCHIVE, record.key, written(record.charged)) end
  end
  redis.call('HSET', ARCHIVE, 'until', numbered[#numbered])
  redis.call('HDEL', RECORDS, unpack(oldest))
  redis.call('ZREM', JOURNAL, unpack(oldest))
end
return outcomes
