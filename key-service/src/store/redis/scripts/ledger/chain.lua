-- Chains of budgets: a key, its group and the group's parent, which all pay.

-- Parts of a bill that nothing else counts: costs, and details of usage.
local NO_PARTS = { 0, COUNTED, 0, COUNTED, 0, 0, 0, 0, 0, 0 }

-- Reads the groups that the keys name, at once; the others when a command needs them.
local groups = {}
local function load_groups()
  local ids, fields = {}, {}
  for n = 1, named do
    local id = keys[n] and keys[n].group
    if id and groups[id] == nil then
      groups[id], ids[#ids + 1], fields[#fields + 1] = false, id, GROUP_FIELD .. id
    end
  end
  if #ids == 0 then return end
  local found = call('HMGET', ACCOUNT, unpack(fields))
  for n, id in ipairs(ids) do groups[id] = found[n] and read_group(id, found[n]) end
end
load_groups()

local function find(id)
  if not id then return false end
  if groups[id] == nil then
    local record = call('HGET', ACCOUNT, GROUP_FIELD .. id)
    groups[id] = record and read_group(id, record)
  end
  return groups[id]
end

-- The chain of a hold or a settlement is that of its payer, else that of the key. A key alone, without bounds, has none,
-- unless it was part of another chain before.
local chains, NONE = {}, {}
local function chain_of(key, payer)
  local known = chains[payer or key]
  if known or known == false and not key.has_chain then return known end
  local group, parent
  if payer then
    group, parent = groups_of(payer)
    group, parent = find(group), find(parent)
  else
    group = find(key.group)
    parent = group and find(group.group)
  end
  local found = false
  if group or parent or key.group or key.bounds or key.has_chain then
    key.has_chain = true
    found = {
      key = key, group = group, parent = parent, levels = {}, bounded = {}, bits = {}, payers = {},
      free = 0, left = 0, moves = -1,
    }
    -- The budgets that are there, with their levels; of those with bounds, the levels as bits.
    for level, budget in ipairs({ key, group or NONE, parent or NONE }) do
      if budget ~= NONE then
        found[#found + 1], found.levels[#found.levels + 1] = budget, level
        if budget.bounds then found.bounded[#found.bounded + 1], found.bits[#found.bits + 1] = budget, 2 ^ (level - 1) end
      end
    end
  end
  chains[payer or key] = found
  return found
end

-- The payer of a key and a model, with the groups of the chain.
local with_groups = (present[HOLD] or present[CAPTURE]) and function(payer)
  if not chain or not chain.group and not chain.parent then return payer end
  if chain.payers[payer] then return chain.payers[payer] end
  local length, group, parent = read('>I2', payer, 17), chain.group, chain.parent
  if group then length = length + GROUP_BIT end
  if parent then length = length + PARENT_BIT end
  local whole = sub(payer, 1, 16) .. pack('>I2', length) .. sub(payer, 19) .. (group and group.id or '')
  chain.payers[payer] = whole .. (parent and parent.id or '')
  return chain.payers[payer]
end

local is_archived = (present[EXTEND] or present[HOLD] or present[CHECK]) and function()
  return chain.group and chain.group.archived_at < NEVER or chain.parent and chain.parent.archived_at < NEVER
end

-- A key may not spend without the groups that it names, nor with an archived group.
local refused_by_groups = (present[HOLD] or present[CHECK]) and function()
  local key, group, parent = chain.key, chain.group, chain.parent
  if key.group and not group or group and group.group and not parent then return 'damaged' end
  if is_archived() then return 'group_archived' end
end

-- Beginning of the window that runs now, and what was billed in it. A clock that steps back stays in the window that has
-- begun.
local function turned(window)
  local start = STARTS[window.per + 1]
  if start > window.start then return start, 0 end
  return window.start, window.used
end

-- Bills the windows of a budget what was billed to the budget since.
local function bill_windows(budget)
  if budget.billed then
    for _, window in ipairs(budget.bounds and budget.bounds.windows or NONE) do
      local start, billed = turned(window)
      window.used_before = window.used_before or billed
      window.start, window.used = start, billed + budget.billed
    end
    budget.billed = false
  end
end

-- What the limit and the windows of a budget leave, computed once: all shrink alike with each bill of the batch, which
-- reaches the windows when the budget is written. Below zero where a bound was lowered.
local function left_of(budget)
  bill_windows(budget)
  local left = budget.limit - budget.used
  for _, window in ipairs(budget.bounds and budget.bounds.windows or NONE) do
    local _, billed = turned(window)
    left = min(left, window.amount - billed)
  end
  budget.left = left
  return left
end

-- What the bounds of all levels still allow, beyond the holds and with them: computed once between two movements of
-- money. Here and below, comparisons stand in place of calls, each of which costs as much as four of them.
local moves = 0
local function free_of_chain()
  if chain.moves < moves then
    local free, least = NEVER, NEVER
    for n = 1, #chain do
      local budget = chain[n]
      local left = budget.left or left_of(budget)
      if left < 0 then left = 0 end
      if left < least then least = left end
      left = left - budget.held
      if left < free then free = left end
    end
    if free < 0 then free = 0 end
    chain.free, chain.left, chain.moves = free, least, moves
  end
  return chain.free, chain.left
end

-- Refuses an amount that a limit or a window does not allow any more; names the level and the windows.
local refused_by_limits = (present[HOLD] or present[CHECK]) and function(amount)
  local _, left = free_of_chain()
  if left >= amount then return end
  for n = 1, #chain do
    local budget = chain[n]
    if left_after(budget.left, 0) < amount then
      local refused = 'limit_reached ' .. chain.levels[n]
      if left_after(budget.limit, budget.used) < amount then return refused end
      bill_windows(budget)
      for _, window in ipairs(budget.bounds.windows) do
        local start, billed = turned(window)
        if left_after(window.amount, billed) < amount then refused = refused .. pack('>Bd', window.per, start) end
      end
      return refused
    end
  end
end

-- Adds to what the groups hold. The key's part is that of every key.
local function add_held(amount)
  moves = moves + 1
  for n = 2, #chain do
    local group = chain[n]
    local held = group.held + amount
    if held < 0 then held = 0 end
    group.held, group.changed = held, true
  end
end

-- Bills an amount to the groups and to all windows. An amount below zero takes back what was billed at an earlier time;
-- a window that began later did not count that bill.
local bill_chain = settles and function(amount)
  moves = moves + 1
  for n = 1, #chain do
    local budget = chain[n]
    if n > 1 then
      budget.used, budget.low, budget.changed = budget.used + amount, budget.low + amount, true
      carry(budget)
    end
    budget.billed = budget.billed or 0
    if amount >= 0 then
      budget.billed = budget.billed + amount
      if budget.left then budget.left = budget.left - amount end
    else
      bill_windows(budget)
      for _, window in ipairs(budget.bounds and budget.bounds.windows or NONE) do
        if window.start <= billed_at then window.used = left_after(window.used, -amount) end
      end
      budget.left = nil
    end
  end
end

local allows = present[HOLD] and function(models, model)
  local count, at = read('>I2', models)
  for _ = 1, count do
    local length, text = read('>I2', models, at)
    if sub(models, text, text + length - 1) == model then return true end
    at = text + length
  end
  return false
end

-- The lists of models of all levels.
local model_lists = (present[HOLD] or present[CHECK]) and function()
  local lists = ''
  for _, budget in ipairs(chain.bounded) do lists = lists .. (budget.bounds.models or '') end
  return lists
end

-- The rates of all levels.
local rates_of = present[HOLD] and function(name)
  local rates = ''
  for _, budget in ipairs(chain.bounded) do rates = rates .. write_rate(budget.bounds[name]) end
  return rates
end

-- Refuses a request that a bound other than money excludes, with what the bounds of all levels say.
local refused_by_bounds = present[HOLD] and function(payer, count, is_readmitted)
  local is_allowed, fits, is_frequent, is_large = true, true, false, false
  if count > MOST_TOKENS then count = MOST_TOKENS end
  for n = 1, #chain.bounded do
    local bounds = chain.bounded[n].bounds
    local requests, of_tokens, models = bounds.requests, bounds.tokens, bounds.models
    if models and not allows(models, sub(payer, 19)) then is_allowed = false end
    if bounds.max_in_flight and bounds.in_flight >= bounds.max_in_flight then fits = false end
    if requests and not is_readmitted and taken_of(requests, now) + RATE_UNITS > requests.per_minute * RATE_UNITS then is_frequent = true end
    if of_tokens and taken_of(of_tokens, now) + count * RATE_UNITS > of_tokens.per_minute * RATE_UNITS then is_large = true end
  end
  if not is_allowed then return 'model_not_allowed ' .. model_lists() end
  if not fits then return 'in_flight' end
  if is_frequent then return 'requests_limited ' .. rates_of('requests') end
  if is_large then return 'tokens_limited ' .. rates_of('tokens') end
end

local replace = (settles or present[HOLD] or present[EXTEND] or present[RELEASE]) and function(rate, counted, by)
  if counted > MOST_TOKENS then counted = MOST_TOKENS end
  if by > MOST_TOKENS then by = MOST_TOKENS end
  local taken = taken_of(rate, now) + (by - counted) * RATE_UNITS
  if taken < 0 then taken = 0 end
  if taken > MOST_TAKEN then taken = MOST_TAKEN end
  rate.taken, rate.taken_now = taken, taken
  if now > rate.at then rate.at = now end
end

-- Whether all bounds were removed and the last request that they counted has ended.
local is_nothing = (settles or present[RELEASE]) and function(bounds)
  return bounds.in_flight == 0 and #bounds.windows == 0
    and not (bounds.requests or bounds.tokens or bounds.max_in_flight or bounds.models)
end

-- Replaces the tokens that the hold counts where it is counted, and ends it there where `ends` is 1. Bounds of which
-- nothing is left are dropped, as in the ledger; chains found from then on have none of them.
local recount = (settles or present[EXTEND] or present[RELEASE]) and function(by, ends)
  if not chain or levels == 0 then return end
  for n = 1, #chain.bounded do
    local budget, bit = chain.bounded[n], chain.bits[n]
    if levels % (2 * bit) >= bit then
      local bounds = budget.bounds
      bounds.in_flight, budget.changed = left_after(bounds.in_flight, ends), true
      if bounds.tokens and tokens ~= by then replace(bounds.tokens, tokens, by) end
      if ends == 1 and is_nothing(bounds) then budget.bounds, chains = false, {} end
    end
  end
  tokens = by
end

-- The amount of a hold, with the state of the rates where there are any.
local held_with_rates = present[HOLD] and function(amount)
  local rates
  for n = 1, #chain.bounded do
    local bounds = chain.bounded[n].bounds
    local r, t = bounds.requests, bounds.tokens
    if r and t then
      rates = (rates or '') .. pack('>Bdddddd', 3, r.per_minute, r.taken, r.at, t.per_minute, t.taken, t.at)
    elseif r or t then
      rates = (rates or '') .. (r and '\1' or '\2') .. write_rate(r or t)
    end
  end
  return rates and pack('>c5d', 'held ', amount) .. rates or amount
end

-- Opens a hold of the chain, and counts a request with its tokens at every level with bounds. Requests per minute count a
-- readmitted request already.
local hold_of_chain = present[HOLD] and function(n, amount, lease_until, payer, is_readmitted)
  levels, tokens = 0, 0
  for of = 1, #chain.bounded do
    local budget = chain.bounded[of]
    local bounds = budget.bounds
    bounds.in_flight, budget.changed, levels, tokens = bounds.in_flight + 1, true, levels + chain.bits[of], used
    if bounds.requests and not is_readmitted then replace(bounds.requests, 0, 1) end
    if bounds.tokens then replace(bounds.tokens, 0, used) end
  end
  holds[n] = pack('>c1dd', 'h', amount, lease_until) .. NOTHING_USED .. with_groups(payer) .. pack('>Bd', levels, tokens)
  return held_with_rates(amount)
end

-- The tokens of a bill that count for rates.
local tokens_of = present[EXPIRE] and function(bill)
  local _, _, prompt, _, completion = read(BILL, bill)
  return prompt + completion
end

-- Cost to the operator, if known, and details of usage.
local read_parts = settles and function(bill, parts)
  local flags, at, upstream_cost, details = read('>B', bill), 1, nil, { 0, 0, 0, 0, 0, 0 }
  if flags % (2 * UPSTREAM_COST) >= UPSTREAM_COST then upstream_cost, at = read('>d', parts) end
  if flags >= DETAILS then
    local present
    present, at = read('>B', parts, at)
    for n = 1, 6 do
      if present % 2 == 1 then details[n], at = read('>I8', parts, at) end
      present = math.floor(present / 2)
    end
  end
  return upstream_cost, details
end

-- Changes of the counters beyond `counts`, by payer: cost to the operator, charges whose cost is known, each with a bound
-- of the result; then details of usage.
local further = {}

-- Counts the further parts of a bill of this amount, in place of those of an earlier bill.
local count_parts = settles and function(payer, bill, charged, bill_before, parts_before, charged_before)
  if parts == '' and parts_before == '' then return end
  local sums = further[payer] or { unpack(NO_PARTS) }
  further[payer] = sums
  local cost, details = read_parts(bill, parts)
  local cost_before, details_before = read_parts(bill_before, parts_before)
  local costs = (cost or 0) - (cost_before or 0)
  local known = (cost and charged or 0) - (cost_before and charged_before or 0)
  sums[1], sums[2] = sums[1] + costs, min(sums[2] + costs, COUNTED)
  sums[3], sums[4] = sums[3] + known, min(sums[4] + known, COUNTED)
  for n = 1, 6 do
    local more = left_after(min(details[n], COUNTED_PER_REQUEST), min(details_before[n], COUNTED_PER_REQUEST))
    sums[4 + n] = min(sums[4 + n] + more, COUNTED)
  end
end

-- The further part of a counter after the changes; nothing where the counter has none.
local further_counts = settles and function(payer, before)
  before = before and #before > COUNTS_SIZE and before
  if not before and not further[payer] then return '' end
  local sums, counted = further[payer] or NO_PARTS, { 0, 0, 0, 0, 0, 0, 0, 0 }
  if before then counted = { read('>dddddddd', before, COUNTS_SIZE + 1) } end
  for n = 3, 8 do counted[n] = min(counted[n] + sums[2 + n], COUNTED) end
  counted[1], counted[2] = min(counted[1] + sums[1], sums[2]), min(counted[2] + sums[3], sums[4])
  return pack('>dddddddd', unpack(counted, 1, 8))
end

-- Changed groups, for the account's hash.
local function write_groups(changed)
  for id, group in pairs(groups) do
    if group and group.changed then
      bill_windows(group)
      changed[#changed + 1], changed[#changed + 2] = GROUP_FIELD .. id, write_group(group)
    end
  end
end

-- The further parts of each bill with flags.
local parts_of, next_parts = {}, BEFORE_PARTS
for n = 1, #BILLS / BILL_SIZE do
  if read('>B', BILLS, BILL_SIZE * n - BILL_SIZE + 1) >= FLAGS then
    next_parts = next_parts + 1
    parts_of[n] = ARGV[next_parts]
  end
end
