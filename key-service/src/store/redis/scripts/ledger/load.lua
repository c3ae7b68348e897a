-- Reads the account, the keys, and the records of the generations that the commands name.

local records = call('HMGET', ACCOUNT, unpack(ARGV, BEFORE_KEYS, BEFORE_PAYERS))
if not records[1] then return false end
local credit, held, tick, entries_before, last_expiry, settled_hour = read(FUNDS, records[1])
local deposited, deposited_at = 0, -1
if #records[1] > FUNDS_SIZE then deposited, deposited_at = read(LAST_DEPOSIT, records[1], FUNDS_SIZE + 1) end
local account = {
  credit = credit, held = held, tick = tick, entries = entries_before, last_expiry = last_expiry,
  settled_hour = settled_hour, deposited = deposited, deposited_at = deposited_at, credit_before = credit, changed = false,
}
local keys = {}
for n = 1, named do
  local record = records[n + 1]
  if record then
    keys[n] = read_key(ARGV[BEFORE_KEYS + n], record)
    read_rest(keys[n], record, KEY_SIZE + 1) -- chain
    if #record > KEY_SIZE then -- plain
      if read('>B', record, KEY_SIZE + 1) ~= ROTATED then error(NEEDS_CHAINS) end -- plain
      keys[n].rotation = sub(record, KEY_SIZE + 2) -- plain
    end -- plain
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

-- Names of the hashes for a settled and for an expired generation.
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
  if tag == 'h' then return read_hold_of_chain(hold, amount, lease_until) end -- chain
  if tag ~= 'H' or #hold < HOLD_SIZE then error(tag == 'h' and NEEDS_CHAINS or 'a hold is damaged') end
  levels, tokens, parts = 0, 0, '' -- chain
  return sub(hold, HOLD_PAYER), amount, lease_until
end

local function read_settlement(settlement)
  local tag, at, charged = read('>c1dd', settlement)
  if tag == 's' then return read_settlement_of_chain(settlement, at, charged) end -- chain
  if tag ~= 'S' or #settlement < SETTLED_SIZE then error(tag == 's' and NEEDS_CHAINS or 'a settlement is damaged') end
  billed_at, parts = at, '' -- chain
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

local bill_of = (present[EXTEND] or present[CAPTURE]) and function(at) return sub(BILLS, BILL_SIZE * at - BILL_SIZE + 1, BILL_SIZE * at) end
