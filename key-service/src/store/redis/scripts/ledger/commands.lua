-- Decides the commands. Each command's function returns the outcome, and leaves new records in `holds` and
-- `settlements`.

local commands = {}

commands[CHECK] = present[CHECK] and function(key, _, _, credential)
  chain = chain_of(key) -- chain
  local refused = may_not_spend(key, credential)
  if chain then return refused or 'allowed ' .. model_lists() end -- chain
  return refused or 'allowed'
end

commands[HOLD] = present[HOLD] and function(key, n, payer, credential, least, enough, most, lease_ticks)
  if holds[n] then
    local held_for, amount = read_hold(holds[n])
    if not is_of(held_for, key) then return 'gone' end
    chain = chain_of(key, held_for) -- chain
    if chain then return held_with_rates(amount) end -- chain
    return amount
  end
  if settlement_of(n) then return 'gone' end
  local paid_by = ARGV[BEFORE_PAYERS + payer]
  chain = chain_of(key) -- chain
  local is_readmitted = used < 0 -- chain
  if is_readmitted then used = -1 - used end -- chain
  local refused = may_not_spend(key, credential)
  if chain then refused = refused or refused_by_bounds(paid_by, used, is_readmitted) or refused_by_limits(least) end -- chain
  local left_of_limit = left_after(key.limit, key.used)
  if not refused and left_of_limit < least then refused = 'limit_reached' end
  if not refused and account.credit < least then refused = 'credit_empty' end
  if refused then
    tell_refusal(key, refused)
    return refused
  end
  if chain then free_of_chain() left_of_limit = chain.left end -- chain
  local left, free = min(left_of_limit, account.credit), available(key)
  if enough < least then enough = least end
  if free < min(enough, left) then return 'reserved' end
  if most < least then most = least end
  local amount = min(most, free)
  set_aside(key, amount)
  local lease_until = account.tick + lease_ticks
  if chain then return hold_of_chain(n, amount, lease_until, paid_by, is_readmitted) end -- chain
  holds[n] = pack('>c1dd', 'H', amount, lease_until) .. NOTHING_USED .. paid_by
  return amount
end

commands[EXTEND] = present[EXTEND] and function(key, n, _, reported, most, cost, lease_ticks)
  local hold = holds[n]
  if not hold then return 'gone' end
  local payer, amount, lease_until = read_hold(hold)
  if not is_of(payer, key) then return 'gone' end
  chain = chain_of(key, payer) -- chain
  local is_revoked = key.revoked_at < NEVER
  is_revoked = is_revoked or chain and is_archived() -- chain
  if not is_revoked then
    local more = min(left_after(most, amount), available(key))
    set_aside(key, more)
    amount = amount + more
  end
  -- Reports may overtake each other; the report with the highest cost is the latest.
  local latest = bill_of(reported)
  local _, cost_before = read('>Bd', hold, HOLD_BILL)
  if cost < cost_before then latest = sub(hold, HOLD_BILL, HOLD_PAYER - 1) end
  lease_until = math.max(lease_until, account.tick + lease_ticks)
  local tag = 'H'
  parts = cost < cost_before and parts or parts_of[reported] or '' -- chain
  recount(math.max(used, tokens), 0) -- chain
  if chain or parts ~= '' then tag, payer = 'h', payer .. pack('>Bd', levels, tokens) .. parts end -- chain
  holds[n] = pack('>c1dd', tag, amount, lease_until) .. latest .. payer
  if is_revoked then return (key.revoked_at < NEVER and 'revoked ' or 'archived ') .. written(amount) end
  return amount
end

-- A capture after an expiry replaces the bill: more is billed up to the available amount, or the excess is given
-- back.
local capture_late = present[CAPTURE] and function(key, n, expired, reported, cost)
  local total = bill_of(reported)
  local payer, charged_before, bill_before = read_settlement(expired)
  local parts_before = parts -- chain
  chain, parts = chain_of(key, payer), parts_of[reported] or '' -- chain
  local billable = charged_before + available(key)
  -- Credit has an upper bound; an amount beyond stays billed.
  local kept = left_after(charged_before, left_after(MAX, account.credit))
  local charged = math.max(min(cost, billable), kept)
  if cost < charged then total = pack('>c1d', sub(total, 1, 1), charged) .. sub(total, 10) end
  local prompt, cached, completion = counted(total)
  local prompt_before, cached_before, completion_before = counted(bill_before)
  local delta = charged - charged_before
  count(payer, 0, left_after(prompt, prompt_before), left_after(cached, cached_before),
        left_after(completion, completion_before), delta)
  count_parts(payer, total, charged, bill_before, parts_before, charged_before) -- chain
  return settle(key, n, payer, total, CAPTURED, charged, delta)
end

-- An earlier bill of an old generation may be forgotten, so all of the cost is shortfall.
local is_remembered = present[CAPTURE] and function(n)
  local high, low = read('>I2I4', ARGV[BEFORE_IDS + n])
  local created_at = high * 4294967296 + low
  return now <= created_at + REMEMBERED and created_at <= now + CLOCK_LEAD
end

-- `cost` is what may be charged, which is less than the bill's where a stream ran on after its cut.
commands[CAPTURE] = present[CAPTURE] and function(key, n, payer, total, cost, prompt, cached, completion)
  if holds[n] then
    local held_for, amount = read_hold(holds[n])
    if not is_of(held_for, key) then return 'gone' end
    chain = chain_of(key, held_for) -- chain
    local charged = charge_of(key, cost, amount)
    count(held_for, 1, prompt, cached, completion, charged)
    recount(used, 1) -- chain
    parts = parts_of[total] or '' -- chain
    count_parts(held_for, bill_of(total), charged, NOTHING_USED, '') -- chain
    return settle(key, n, held_for, bill_of(total), CAPTURED, charged, charged)
  end
  local settlement = settlement_of(n)
  if not settlement then
    local paid_by = ARGV[BEFORE_PAYERS + payer]
    chain, parts = chain_of(key), parts_of[total] or '' -- chain
    paid_by = with_groups(paid_by) -- chain
    local charged = is_remembered(n) and min(cost, available(key)) or 0
    count(paid_by, 1, prompt, cached, completion, charged)
    count_parts(paid_by, bill_of(total), charged, NOTHING_USED, '') -- chain
    return settle(key, n, paid_by, bill_of(total), CAPTURED, charged, charged)
  end
  if not is_of(read_settlement(settlement), key) then return 'gone' end
  if read('>B', settlement, SETTLED_BILL) % FLAGS ~= EXPIRED then return settlement end
  return capture_late(key, n, settlement, total, cost)
end

commands[RELEASE] = present[RELEASE] and function(key, n)
  local record = holds[n]
  if record then
    local payer, amount = read_hold(record)
    if not is_of(payer, key) then return 'gone' end
    chain = chain_of(key, payer) -- chain
    recount(0, 1) -- chain
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
  chain = chain_of(key, payer) -- chain
  local reported = sub(hold, HOLD_BILL, HOLD_PAYER - 1)
  local _, cost = read('>Bd', reported)
  local charged = charge_of(key, cost, amount)
  local prompt, cached, completion = counted(reported)
  count(payer, 1, prompt, cached, completion, charged)
  recount(tokens_of(reported), 1) -- chain
  count_parts(payer, reported, charged, NOTHING_USED, '') -- chain
  return settle(key, n, payer, reported, EXPIRED, charged, charged)
end

-- The amounts of new deposits with the credit just after, the note and the payment, by id.
local new_deposits = {}
commands[DEPOSIT] = present[DEPOSIT] and function(_, n, _, _, amount)
  local id = ARGV[BEFORE_IDS + n]
  local earlier = new_deposits[id] or call('HGET', DEPOSITS, id)
  if earlier then
    local added, credit = string.match(earlier, '^(%d+) ?(%d*)')
    if tonumber(added) ~= amount then return 'deposit_differs ' .. added end
    return tonumber(credit) or account.credit
  end
  if amount <= 0 or account.credit + amount > MAX then return 'bad_deposit' end
  account.credit, account.changed = account.credit + amount, true
  account.deposited, account.deposited_at, account.credit_before = account.credit, now, account.credit
  local event = ARGV[BEFORE_IDS + n + deposits]
  told[#told + 1] = { sub(event, 1, 16), 'event', sub(event, 17) }
  new_deposits[id] = written(amount) .. ' ' .. written(account.credit) .. ' ' .. ARGV[BEFORE_IDS + n + 2 * deposits]
  return account.credit
end

commands[TICK] = present[TICK] and function(_, _, _, _, seen)
  if seen == account.tick then account.tick, account.changed = account.tick + 1, true end
  return account.tick
end

local outcomes = {}
for at = 1, #COMMANDS, COMMAND_SIZE do
  local name, key, n, payer, total, a, b, c, d, e = read(COMMAND, COMMANDS, at)
  used = e -- chain
  local outcome = 'unknown_key'
  if keys[key] or name == DEPOSIT or name == TICK then
    outcome = commands[name](keys[key], n, payer, total, a, b, c, d)
  end
  outcomes[#outcomes + 1] = outcome
end
