-- The balances from which every charge is paid, the counters, and the journal.

-- The order of checks is part of the public contract.
local may_not_spend = (present[CHECK] or present[HOLD]) and function(key, credential)
  if credential > 0 and not key.rotation then return 'unknown_key' end
  if key.rotation then
    local current, previous_until = read('>dd', key.rotation)
    if credential > 0 then credential = read('>d', ARGV[#ARGV], 8 * credential - 7) end
    local is_previous = credential + 1 == current and now < previous_until and previous_until < NEVER
    if credential ~= current and not is_previous then return 'unknown_key' end
  end
  if key.revoked_at < NEVER then return 'revoked' end
  if key.expires_at <= now then return 'key_expired' end
  local refused = chain and (refused_by_groups() or refused_by_limits(1)) -- chain
  if refused then return refused end -- chain
  if key.used >= key.limit then return 'limit_reached' end
  if account.credit <= 0 then return 'credit_empty' end
end

-- The part of limit and credit that is neither used nor held.
local function available(key)
  local of_limit, of_credit = key.limit - key.used - key.held, account.credit - account.held
  if chain then of_limit = free_of_chain() end -- chain
  return math.max(min(of_limit, of_credit), 0)
end

local set_aside = (present[HOLD] or present[EXTEND]) and function(key, amount)
  account.held, key.held = account.held + amount, key.held + amount
  account.changed, key.changed = true, true
  if chain then add_held(amount) end -- chain
end

local give_back = (settles or present[RELEASE]) and function(key, amount)
  account.held, key.held = left_after(account.held, amount), left_after(key.held, amount)
  account.changed, key.changed = true, true
  if chain then add_held(-amount) end -- chain
end

-- Bills an amount to a key. An amount below zero gives money back.
local bill = settles and function(key, amount)
  account.credit = account.credit - amount
  key.used, key.low = key.used + amount, key.low + amount
  account.changed, key.changed = true, true
  if amount > 0 then key.last_used_at = now end
  if chain then bill_chain(amount) end -- chain
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
  carry(key)
  account.entries = account.entries + 1
  local tag = 'S'
  if chain or parts ~= '' then tag = 's' end -- chain
  if parts ~= '' then payer = payer .. parts end -- chain
  local settlement = pack('>c1ddddd', tag, now, charged, delta, key.high, key.low) .. usage_bill .. payer
  entries[#entries + 1] = ARGV[BEFORE_IDS + n]
  entries[#entries + 1] = settlement
  holds[n], settlements[n], endings[n] = false, settlement, ending
  return settlement
end

-- Resolves a hold: the hold pays for the covered part of the cost, other available money for the rest.
local charge_of = settles and function(key, cost, amount)
  local charged = cost
  if cost > amount then charged = min(cost, amount + available(key)) end
  give_back(key, amount)
  return charged
end
