-- Effect of commands on one account and its keys: `domain/ledger.rs` for Redis, in its order and its terms. Where
-- the two differ, this one is wrong.
--
-- Everything is read once, the commands are decided one by one, everything that changed is written once. Nothing is
-- written before the last decision, so that an error leaves everything as it was.
--
-- Records are packed with `struct`, which costs Redis a fifth of what texts cost. Amounts are nano-USD below 2^53, exact
-- as doubles; a limit or a time that is not set is infinite. A `bill` is an ending, a cost and a usage, a `payer` the id
-- of a key and a model. `records.rs` has all formats, `batch.rs` the arguments.
--
-- KEYS  the account, its holds, journal, deposits and counters of today; then hashes of settled and of expired generations
-- ARGV  1 the settings; 2 for each generation the places of its two hashes among KEYS; 3 the commands; 4 their bills;
--       then the ids of generations, the ids of deposits, 'funds', the ids of keys, the payers
--
-- Answers a number or a text for each command; nothing where the account does not exist.

local MAX = 9000000000000000 -- `NanoUsd::MAX`
local NEVER = math.huge
local REMEMBERED, CLOCK_LEAD, HOUR = 7200000, 60000, 3600000
-- Seconds for which a settled generation is kept after its hour, and an expired one after its expiry.
local SETTLED_KEPT, EXPIRED_KEPT = 14400, 2764800
local COUNTED, COUNTED_PER_REQUEST = 9007199254740991, 1000000000000
-- An amount billed to a key may exceed 2^53: it is stored as a multiple of this number and a remainder.
local CARRY = 1000000000000000
local CHECK, HOLD, EXTEND, CAPTURE, RELEASE, EXPIRE, DEPOSIT, TICK = 1, 2, 3, 4, 5, 6, 7, 8
local CAPTURED, ESTIMATED, EXPIRED = 0, 1, 2
local COMMAND, COMMAND_SIZE, BILL, BILL_SIZE = '>BHHHHdddd', 41, '>BdI8I8I8', 33
local FUNDS, KEY, COUNTS = '>dddddd', '>ddddddd', '>ddddd'
local HOLD_SIZE, HOLD_BILL, HOLD_PAYER, SETTLED_SIZE, SETTLED_BILL, SETTLED_PAYER = 68, 18, 51, 92, 42, 75
local NOTHING_USED = '\2' .. string.rep('\0', 32)
local ACCOUNT, HOLDS, JOURNAL, DEPOSITS, COUNTERS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local PLACES, COMMANDS, BILLS, BEFORE_IDS = ARGV[2], ARGV[3], ARGV[4], 4

local call, pack, read, sub = redis.call, struct.pack, struct.unpack, string.sub
-- The first generations are those to be held (`holding`), and the first of all share two hashes (`alike`).
local now, most_entries, counters_kept, hour, holding, alike, generations, deposits, named =
  read('>ddddHHHHH', ARGV[1])
-- Names of the commands in this batch. Functions are made for these alone, as making one takes longer than running it.
local present = {}
for n = 43, #ARGV[1] do present[string.byte(ARGV[1], n)] = true end
local settles = present[CAPTURE] or present[EXPIRE]
local BEFORE_KEYS = BEFORE_IDS + generations + deposits + 1
local BEFORE_PAYERS = BEFORE_KEYS + named

local function left_after(n, taken)
  if n > taken then return n - taken end
  return 0
end

local function min(a, b)
  if a < b then return a end
  return b
end

local function written(n) return string.format('%.0f', n) end

-- Load.

local funds = call('HMGET', ACCOUNT, unpack(ARGV, BEFORE_KEYS, BEFORE_PAYERS))
if not funds[1] then return false end
local account, keys = { changed = false }, {}
account.credit, account.held, account.tick, account.entries, account.last_expiry, account.settled_hour =
  read(FUNDS, funds[1])
for n = 1, named do
  if funds[n + 1] then
    local key = { id = ARGV[BEFORE_KEYS + n], changed = false }
    key.limit, key.high, key.low, key.held, key.expires_at, key.revoked_at, key.last_used_at = read(KEY, funds[n + 1])
    key.used = key.high * CARRY + key.low
    keys[n] = key
  end
end

-- Open holds before the commands and now, settlements, and endings within these commands, by generation.
local holds_before, holds, settlements, endings = {}, {}, {}, {}
if generations > 0 then
  holds_before = call('HMGET', HOLDS, unpack(ARGV, BEFORE_IDS + 1, BEFORE_IDS + generations))
  for n = 1, generations do holds[n] = holds_before[n] end
end
local some_expired = account.last_expiry > now - 1000 * EXPIRED_KEPT
if holding > 0 then
  settlements = call('HMGET', KEYS[6], unpack(ARGV, BEFORE_IDS + 1, BEFORE_IDS + holding))
  if some_expired then
    local expired = call('HMGET', KEYS[7], unpack(ARGV, BEFORE_IDS + 1, BEFORE_IDS + holding))
    for n = 1, holding do settlements[n] = settlements[n] or expired[n] end
  end
end

-- Names of the hashes in which a generation is kept once it is settled, and once it expired.
local function hashes_of(n)
  if n <= alike then return KEYS[6], KEYS[7] end
  local settled, expired = read('>HH', PLACES, 4 * n - 3)
  return KEYS[settled], KEYS[expired]
end

local function settlement_of(n)
  if settlements[n] == nil then
    local settled, expired = hashes_of(n)
    local id = ARGV[BEFORE_IDS + n]
    settlements[n] = call('HGET', settled, id) or some_expired and call('HGET', expired, id)
  end
  return settlements[n]
end

local function read_hold(hold)
  local tag, amount, lease_until = read('>c1dd', hold)
  if tag ~= 'H' or #hold < HOLD_SIZE then error('a hold is damaged') end
  return sub(hold, HOLD_PAYER), amount, lease_until
end

local function read_settlement(settlement)
  local tag, _, charged = read('>c1dd', settlement)
  if tag ~= 'S' or #settlement < SETTLED_SIZE then error('a settlement is damaged') end
  return sub(settlement, SETTLED_PAYER), charged, sub(settlement, SETTLED_BILL, SETTLED_PAYER - 1)
end

local payers = {}
local function is_of(payer, key)
  local id = payers[payer]
  if not id then
    id = sub(payer, 1, 16)
    payers[payer] = id
  end
  return id == key.id
end

local function bill_of(at) return sub(BILLS, BILL_SIZE * at - BILL_SIZE + 1, BILL_SIZE * at) end

-- The two balances from which every charge is paid.

-- The order of checks is part of the public contract.
local function may_not_spend(key)
  if key.revoked_at < NEVER then return 'revoked' end
  if key.expires_at <= now then return 'key_expired' end
  if key.used >= key.limit then return 'limit_reached' end
  if account.credit <= 0 then return 'credit_empty' end
end

-- The part of limit and credit that is neither used nor held.
local function available(key)
  local of_limit, of_credit = key.limit - key.used - key.held, account.credit - account.held
  return math.max(min(of_limit, of_credit), 0)
end

local function set_aside(key, amount)
  account.held, key.held = account.held + amount, key.held + amount
  account.changed, key.changed = true, true
end

local function give_back(key, amount)
  account.held, key.held = left_after(account.held, amount), left_after(key.held, amount)
  account.changed, key.changed = true, true
end

-- Bills an amount to a key. An amount below zero gives money back.
local function bill(key, amount)
  account.credit = account.credit - amount
  key.used, key.low = key.used + amount, key.low + amount
  account.changed, key.changed = true, true
  if amount > 0 then key.last_used_at = now end
end

-- Changes of counters, by payer: requests, tokens and charges to add, and a bound of the resulting charges.
local counters, counts = {}, {}

local count = settles and function(payer, requests, prompt, cached, completion, charged)
  local sums = counts[payer]
  if not sums then
    counters[#counters + 1] = payer
    sums = { 0, 0, 0, 0, 0, COUNTED }
    counts[payer] = sums
  end
  sums[1], sums[2], sums[3] = sums[1] + requests, min(sums[2] + prompt, COUNTED), min(sums[3] + cached, COUNTED)
  sums[4], sums[5] = min(sums[4] + completion, COUNTED), sums[5] + charged
  sums[6] = min(sums[6] + charged, COUNTED)
end

local counted = settles and function(usage_bill)
  local _, _, prompt, cached, completion = read(BILL, usage_bill)
  return min(prompt, COUNTED_PER_REQUEST), min(cached, COUNTED_PER_REQUEST), min(completion, COUNTED_PER_REQUEST)
end

-- The entries of the journal: ids and settlements in turn.
local entries = {}

local settle = settles and function(key, n, payer, usage_bill, ending, charged, delta)
  bill(key, delta)
  if key.low >= CARRY or key.low < 0 then
    local carried = math.floor(key.low / CARRY)
    key.high, key.low = key.high + carried, key.low - carried * CARRY
  end
  account.entries = account.entries + 1
  local settlement = pack('>c1ddddd', 'S', now, charged, delta, key.high, key.low) .. usage_bill .. payer
  entries[#entries + 1] = ARGV[BEFORE_IDS + n]
  entries[#entries + 1] = settlement
  holds[n], settlements[n], endings[n] = false, settlement, ending
  return settlement
end

-- Resolves a hold: the covered part of the cost is billed from it, the rest from other available money.
local charge_of = settles and function(key, cost, amount)
  local charged = cost
  if cost > amount then charged = min(cost, amount + available(key)) end
  give_back(key, amount)
  return charged
end

-- Decide. Each command returns its outcome, and leaves new records in `holds` and `settlements`.

local commands = {}

commands[CHECK] = present[CHECK] and function(key) return may_not_spend(key) or 'allowed' end

commands[HOLD] = present[HOLD] and function(key, n, payer, _, least, enough, most, lease_ticks)
  if holds[n] then
    local held_for, amount = read_hold(holds[n])
    return is_of(held_for, key) and amount or 'gone'
  end
  if settlement_of(n) then return 'gone' end
  local refused = may_not_spend(key)
  if refused then return refused end
  local left_of_limit = left_after(key.limit, key.used)
  if left_of_limit < least then return 'limit_reached' end
  if account.credit < least then return 'credit_empty' end
  local left, free = min(left_of_limit, account.credit), available(key)
  if enough < least then enough = least end
  if free < min(enough, left) then return 'reserved' end
  if most < least then most = least end
  local amount = min(most, free)
  set_aside(key, amount)
  holds[n] = pack('>c1dd', 'H', amount, account.tick + lease_ticks) .. NOTHING_USED .. ARGV[BEFORE_PAYERS + payer]
  return amount
end

commands[EXTEND] = present[EXTEND] and function(key, n, _, reported, most, cost, lease_ticks)
  local hold = holds[n]
  if not hold then return 'gone' end
  local payer, amount, lease_until = read_hold(hold)
  if not is_of(payer, key) then return 'gone' end
  if key.revoked_at == NEVER then
    local more = min(left_after(most, amount), available(key))
    set_aside(key, more)
    amount = amount + more
  end
  -- Reports may overtake each other; the one with the highest cost is the latest.
  local latest = bill_of(reported)
  local _, cost_before = read('>Bd', hold, HOLD_BILL)
  if cost < cost_before then latest = sub(hold, HOLD_BILL, HOLD_PAYER - 1) end
  lease_until = math.max(lease_until, account.tick + lease_ticks)
  holds[n] = pack('>c1dd', 'H', amount, lease_until) .. latest .. payer
  if key.revoked_at < NEVER then return 'revoked ' .. written(amount) end
  return amount
end

-- A capture after an expiry replaces its bill: more is billed up to the available amount, or less is given back.
local capture_late = present[CAPTURE] and function(key, n, expired, total, cost)
  local payer, charged_before, bill_before = read_settlement(expired)
  local billable = charged_before + available(key)
  -- Credit has an upper bound; an amount that it cannot take back stays billed.
  local kept = left_after(charged_before, left_after(MAX, account.credit))
  local charged = math.max(min(cost, billable), kept)
  if cost < charged then total = pack('>c1d', sub(total, 1, 1), charged) .. sub(total, 10) end
  local prompt, cached, completion = counted(total)
  local prompt_before, cached_before, completion_before = counted(bill_before)
  local delta = charged - charged_before
  count(payer, 0, left_after(prompt, prompt_before), left_after(cached, cached_before),
        left_after(completion, completion_before), delta)
  return settle(key, n, payer, total, CAPTURED, charged, delta)
end

-- An earlier bill of an old generation may be forgotten, so all of the cost is shortfall.
local is_remembered = present[CAPTURE] and function(n)
  local high, low = read('>I2I4', ARGV[BEFORE_IDS + n])
  local created_at = high * 4294967296 + low
  return now <= created_at + REMEMBERED and created_at <= now + CLOCK_LEAD
end

commands[CAPTURE] = present[CAPTURE] and function(key, n, payer, total, cost, prompt, cached, completion)
  if holds[n] then
    local held_for, amount = read_hold(holds[n])
    if not is_of(held_for, key) then return 'gone' end
    local charged = charge_of(key, cost, amount)
    count(held_for, 1, prompt, cached, completion, charged)
    return settle(key, n, held_for, bill_of(total), CAPTURED, charged, charged)
  end
  local settlement = settlement_of(n)
  if not settlement then
    local paid_by = ARGV[BEFORE_PAYERS + payer]
    local charged = is_remembered(n) and min(cost, available(key)) or 0
    count(paid_by, 1, prompt, cached, completion, charged)
    return settle(key, n, paid_by, bill_of(total), CAPTURED, charged, charged)
  end
  if not is_of(read_settlement(settlement), key) then return 'gone' end
  if read('>B', settlement, SETTLED_BILL) ~= EXPIRED then return settlement end
  return capture_late(key, n, settlement, bill_of(total), cost)
end

commands[RELEASE] = present[RELEASE] and function(key, n)
  local record = holds[n]
  if record then
    local payer, amount = read_hold(record)
    if not is_of(payer, key) then return 'gone' end
    give_back(key, amount)
    holds[n] = false
    return 'released'
  end
  local settlement = settlement_of(n)
  return settlement and not is_of(read_settlement(settlement), key) and 'gone' or 'released'
end

commands[EXPIRE] = present[EXPIRE] and function(key, n)
  local hold = holds[n]
  if not hold then return 'gone' end
  local payer, amount, lease_until = read_hold(hold)
  if not is_of(payer, key) then return 'gone' end
  if lease_until > account.tick then return 'not_due' end
  local reported = sub(hold, HOLD_BILL, HOLD_PAYER - 1)
  local _, cost = read('>Bd', reported)
  local charged = charge_of(key, cost, amount)
  local prompt, cached, completion = counted(reported)
  count(payer, 1, prompt, cached, completion, charged)
  return settle(key, n, payer, reported, EXPIRED, charged, charged)
end

-- The amounts of new deposits by id.
local new_deposits = {}
commands[DEPOSIT] = present[DEPOSIT] and function(_, n, _, _, amount)
  local id = ARGV[BEFORE_IDS + n]
  if new_deposits[id] or call('HEXISTS', DEPOSITS, id) == 1 then return account.credit end
  if amount <= 0 or account.credit + amount > MAX then return 'bad_deposit' end
  account.credit, account.changed = account.credit + amount, true
  new_deposits[id] = written(amount)
  return account.credit
end

commands[TICK] = present[TICK] and function(_, _, _, _, seen)
  if seen == account.tick then account.tick, account.changed = account.tick + 1, true end
  return account.tick
end

local outcomes = {}
for at = 1, #COMMANDS, COMMAND_SIZE do
  local name, key, n, payer, total, a, b, c, d = read(COMMAND, COMMANDS, at)
  local outcome = 'unknown_key'
  if keys[key] or name == DEPOSIT or name == TICK then
    outcome = commands[name](keys[key], n, payer, total, a, b, c, d)
  end
  outcomes[#outcomes + 1] = outcome
end

-- Write. The journal comes first: it refuses a number that is not larger than all others.

if #entries > 0 then
  call('XADD', JOURNAL, 'MINID', '~', written(left_after(account.entries + 1, most_entries)),
       written(account.entries - #entries / 2 + 1) .. '-0', 'entries', table.concat(entries))
end

local running, ended, settled = {}, {}, {}
for n = 1, generations do
  local hold, before = holds[n], holds_before[n]
  if hold and hold ~= before then
    running[#running + 1], running[#running + 2] = ARGV[BEFORE_IDS + n], hold
  elseif before and not hold then
    ended[#ended + 1] = ARGV[BEFORE_IDS + n]
  end
  if endings[n] == CAPTURED and n <= alike then
    settled[#settled + 1], settled[#settled + 2] = ARGV[BEFORE_IDS + n], settlements[n]
  elseif endings[n] then
    local captured, expired = hashes_of(n)
    local name, kept = captured, SETTLED_KEPT
    if endings[n] == EXPIRED then name, kept, account.last_expiry = expired, EXPIRED_KEPT, now end
    call('HSET', name, ARGV[BEFORE_IDS + n], settlements[n])
    call('EXPIRE', name, kept)
  end
  if endings[n] == CAPTURED and some_expired and not before then
    local _, expired = hashes_of(n)
    call('HDEL', expired, ARGV[BEFORE_IDS + n])
  end
end
if #settled > 0 then
  call('HSET', KEYS[6], unpack(settled))
  -- Within its hour, the hash has its expiry from the first settlement on.
  if hour ~= account.settled_hour or now < hour * HOUR - CLOCK_LEAD or now >= (hour + 1) * HOUR then
    call('EXPIRE', KEYS[6], SETTLED_KEPT)
    account.settled_hour = hour
  end
end

local changed = {}
if account.changed then
  changed = { 'funds', pack(FUNDS, account.credit, account.held, account.tick, account.entries,
                            account.last_expiry, account.settled_hour) }
end
for n = 1, named do
  local key = keys[n]
  if key and key.changed then
    changed[#changed + 1], changed[#changed + 2] = key.id,
      pack(KEY, key.limit, key.high, key.low, key.held, key.expires_at, key.revoked_at, key.last_used_at)
  end
end
if #changed > 0 then call('HSET', ACCOUNT, unpack(changed)) end
if #running > 0 then call('HSET', HOLDS, unpack(running)) end
if #ended > 0 then call('HDEL', HOLDS, unpack(ended)) end
for id, amount in pairs(new_deposits) do call('HSET', DEPOSITS, id, amount) end
if #entries == 0 then return outcomes end

local before, after = call('HMGET', COUNTERS, unpack(counters)), {}
for n = 1, #counters do
  local requests, prompt, cached, completion, charged = 0, 0, 0, 0, 0
  if before[n] then requests, prompt, cached, completion, charged = read(COUNTS, before[n]) end
  local sums = counts[counters[n]]
  after[2 * n - 1] = counters[n]
  after[2 * n] = pack(COUNTS, min(requests + sums[1], COUNTED), min(prompt + sums[2], COUNTED),
                      min(cached + sums[3], COUNTED), min(completion + sums[4], COUNTED), min(charged + sums[5], sums[6]))
end
-- A new counter may be the first of its day.
if call('HSET', COUNTERS, unpack(after)) > 0 then call('EXPIRE', COUNTERS, written(counters_kept)) end
return outcomes
