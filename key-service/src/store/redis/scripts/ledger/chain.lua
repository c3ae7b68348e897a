-- Chains of budgets: a key, its group and the group's parent, which all pay.

-- Parts of a bill that nothing else counts: costs, and details of usage.
local NO_PARTS = { 0, COUNTED, 0, COUNTED, 0, 0, 0, 0, 0, 0 }

-- Reads the groups that the keys and the payers of holds name, at once.
local groups = {}
local function load_groups()
  local ids, fields = {}, {}
  local function want(id)
    if id and groups[id] == nil then
      groups[id], ids[#ids + 1], fields[#fields + 1] = false, id, GROUP_FIELD .. id
    end
  end
  for n = 1, named do
    if keys[n] then want(keys[n].group) end
  end
  for n = 1, generations do
    if holds[n] and sub(holds[n], 1, 1) == 'h' then
      local group, parent = groups_of(read_hold(holds[n]))
      want(group)
      want(parent)
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
local chains = {}
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
    local has_bounds = key.bounds or group and group.bounds or parent and parent.bounds
    found = { key, group, parent, has_bounds = has_bounds, free = 0, left = 0, moves = -1 }
  end
  chains[payer or key] = found
  return found
end

-- The payer of a key and a model, with the groups of the chain.
local function with_groups(payer)
  if not chain or not chain[2] and not chain[3] then return payer end
  local length, group, parent = read('>I2', payer, 17), chain[2], chain[3]
  if group then length = length + GROUP_BIT end
  if parent then length = length + PARENT_BIT end
  return sub(payer, 1, 16) .. pack('>I2', length) .. sub(payer, 19) .. (group and group.id or '') .. (parent and parent.id or '')
end

local is_archived = (present[EXTEND] or present[HOLD] or present[CHECK]) and function()
  return chain[2] and chain[2].archived_at < NEVER or chain[3] and chain[3].archived_at < NEVER
end

-- A key may not spend without the groups that it names, nor with an archived group.
local refused_by_groups = (present[HOLD] or present[CHECK]) and function()
  local key, group, parent = chain[1], chain[2], chain[3]
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

-- What the limit and the windows of a budget leave, computed once: all shrink alike with each bill of the batch, which
-- reaches the windows when the budget is written.
local function left_of(budget)
  local left = budget.left
  if not left then
    left = budget.limit - budget.used
    for _, window in ipairs(budget.bounds and budget.bounds.windows or {}) do
      local _, billed = turned(window)
      left = min(left, window.amount - billed)
    end
    budget.left = left
  end
  return left_after(left, 0)
end

-- Bills the windows of a budget what was billed to the budget since.
local function bill_windows(budget)
  if budget.billed then
    for _, window in ipairs(budget.bounds and budget.bounds.windows or {}) do
      local start, billed = turned(window)
      window.start, window.used = start, billed + budget.billed
    end
    budget.billed = false
  end
end

-- What the bounds of all levels still allow, beyond the holds and with them: computed once between two movements of
-- money.
local moves = 0
local function free_of_chain()
  if chain.moves < moves then
    local free, left = NEVER, NEVER
    for level = 1, 3 do
      local budget = chain[level]
      if budget then
        local of_budget = left_of(budget)
        left, free = min(left, of_budget), min(free, left_after(of_budget, budget.held))
      end
    end
    chain.free, chain.left, chain.moves = free, left, moves
  end
  return chain.free, chain.left
end

-- Refuses an amount that a limit or a window does not allow any more; names the level and the windows.
local refused_by_limits = (present[HOLD] or present[CHECK]) and function(amount)
  local _, left = free_of_chain()
  if left >= amount then return end
  for level = 1, 3 do
    local budget = chain[level]
    if budget and left_of(budget) < amount then
      local refused = 'limit_reached ' .. level
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
  for level = 2, 3 do
    local group = chain[level]
    if group then group.held, group.changed = math.max(group.held + amount, 0), true end
  end
end

-- Bills an amount to the groups and to all windows. An amount below zero takes back what was billed at an earlier time;
-- a window that began later did not count that bill.
local bill_chain = settles and function(amount)
  moves = moves + 1
  for level = 1, 3 do
    local budget = chain[level]
    if budget then
      if level > 1 then
        budget.used, budget.low, budget.changed = budget.used + amount, budget.low + amount, true
        carry(budget)
      end
      if amount >= 0 then
        budget.billed, budget.left = (budget.billed or 0) + amount, budget.left and budget.left - amount
      else
        budget.billed, budget.left = budget.billed or 0, nil
        bill_windows(budget)
        for _, window in ipairs(budget.bounds and budget.bounds.windows or {}) do
          if window.start <= billed_at then window.used = left_after(window.used, -amount) end
        end
      end
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

-- Whether this many requests or tokens do not fit a bucket. A refusal changes nothing.
local is_full = present[HOLD] and function(rate, count)
  return rate and taken_of(rate, now) + min(count, MOST_TOKENS) * RATE_UNITS > rate.per_minute * RATE_UNITS
end

-- The lists of models of all levels.
local model_lists = (present[HOLD] or present[CHECK]) and function()
  local lists = ''
  for level = 1, 3 do
    lists = lists .. (chain[level] and chain[level].bounds and chain[level].bounds.models or '')
  end
  return lists
end

-- Refuses a request that a bound other than money excludes, with what the bounds of all levels say.
local refused_by_bounds = present[HOLD] and function(payer, tokens)
  if not chain.has_bounds then return end
  local model, of_requests, of_tokens = sub(payer, 19), '', ''
  local is_allowed, fits, is_frequent, is_large = true, true, false, false
  for level = 1, 3 do
    local bounds = chain[level] and chain[level].bounds
    if bounds then
      if bounds.models then is_allowed = is_allowed and allows(bounds.models, model) end
      if bounds.max_in_flight and bounds.in_flight >= bounds.max_in_flight then fits = false end
      is_frequent, is_large = is_frequent or is_full(bounds.requests, 1), is_large or is_full(bounds.tokens, tokens)
    end
  end
  if not is_allowed then return 'model_not_allowed ' .. model_lists() end
  if not fits then return 'in_flight' end
  if is_frequent or is_large then
    for level = 1, 3 do
      local bounds = chain[level] and chain[level].bounds or {}
      of_requests, of_tokens = of_requests .. write_rate(bounds.requests), of_tokens .. write_rate(bounds.tokens)
    end
  end
  if is_frequent then return 'requests_limited ' .. of_requests end
  if is_large then return 'tokens_limited ' .. of_tokens end
end

local function replace(rate, counted, by)
  local taken = taken_of(rate, now) + (min(by, MOST_TOKENS) - min(counted, MOST_TOKENS)) * RATE_UNITS
  rate.taken, rate.at = math.max(min(taken, MOST_TAKEN), 0), math.max(rate.at, now)
end

-- Whether all bounds were removed and the last request that they counted has ended.
local function is_nothing(bounds)
  return bounds.in_flight == 0 and #bounds.windows == 0
    and not (bounds.requests or bounds.tokens or bounds.max_in_flight or bounds.models)
end

-- Replaces the tokens that the hold counts where it is counted, and ends it there where `ends` is 1. Bounds of which
-- nothing is left are dropped, as in the ledger.
local function recount(by, ends)
  if levels == 0 then return end
  local bit = 1
  for level = 1, 3 do
    local budget = levels % (2 * bit) >= bit and chain[level]
    local bounds = budget and budget.bounds
    if bounds then
      bounds.in_flight, budget.changed = left_after(bounds.in_flight, ends), true
      if bounds.tokens and tokens ~= by then replace(bounds.tokens, tokens, by) end
      if ends == 1 and is_nothing(bounds) then budget.bounds = false end
    end
    bit = 2 * bit
  end
  tokens = by
end

-- Counts a request with this many tokens at every level with bounds.
local count_request = present[HOLD] and function(of_prompt)
  levels, tokens = 0, 0
  if not chain.has_bounds then return end
  local bit = 1
  for level = 1, 3 do
    local budget = chain[level]
    local bounds = budget and budget.bounds
    if bounds then
      bounds.in_flight, budget.changed = bounds.in_flight + 1, true
      levels, tokens = levels + bit, of_prompt
      if bounds.requests then replace(bounds.requests, 0, 1) end
      if bounds.tokens then replace(bounds.tokens, 0, of_prompt) end
    end
    bit = 2 * bit
  end
end

-- The amount of a hold, with the state of the rates where there are any.
local held_with_rates = present[HOLD] and function(amount)
  if not chain.has_bounds then return amount end
  local rates = ''
  for level = 1, 3 do
    local bounds = chain[level] and chain[level].bounds
    if bounds and (bounds.requests or bounds.tokens) then
      rates = rates .. pack('>B', (bounds.requests and 1 or 0) + (bounds.tokens and 2 or 0))
        .. write_rate(bounds.requests) .. write_rate(bounds.tokens)
    end
  end
  if rates == '' then return amount end
  return 'held ' .. pack('>d', amount) .. rates
end

-- Opens a hold of the chain.
local hold_of_chain = present[HOLD] and function(n, amount, lease_until, payer)
  count_request(used)
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
